// Package autoscaler decides the number of model servers, as in llm-d: Prometheus scrapes the endpoint picker and the
// model servers, KEDA queries it for the figures of its triggers, and Kubernetes' HorizontalPodAutoscaler computes a
// number of replicas from them. One machine plays all three, with their intervals and phases. Begin to read at Machine.
//
// The HPA's rules are those of Kubernetes 1.34 (pkg/controller/podautoscaler), KEDA's those of 2.18
// (pkg/scaling/executor, pkg/fallback).
package autoscaler
