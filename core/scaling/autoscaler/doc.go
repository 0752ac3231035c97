// Package autoscaler decides how many model servers there are to be, as llm-d has it done:
// Prometheus scrapes the endpoint picker and the model servers, KEDA asks it for the figures
// of its triggers, and Kubernetes' HorizontalPodAutoscaler makes a number of replicas of
// them. All three are here with their intervals and phases, in one machine.
//
// The HPA's rules are those of Kubernetes 1.34 (pkg/controller/podautoscaler), KEDA's those of
// 2.18 (pkg/scaling/executor, pkg/fallback).
package autoscaler
