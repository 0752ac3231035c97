// Package upstream does in virtual time what Envoy does, by its policies, between a pool's endpoint picker and its
// endpoints. It decides to which endpoint an attempt goes, what it retries and after how long, what it cuts off, how
// many connections and requests it allows, and which endpoints are ejected or fail their health checks. In wall time
// the real Envoy decides all this; tests compare the two.
//
// The package implements Envoy's rules for one worker thread. Connections take no time to set up, and belong to one
// endpoint.
package upstream
