// Package upstream is what Envoy does between a pool's endpoint picker and its endpoints,
// as policies say: to which endpoint an attempt goes, what is tried again and after how
// long, what is cut, how many connections and requests there may be, and which endpoints
// are ejected or fail their health checks. In wall time the real Envoy decides all that;
// here it is said once more for virtual time, and tests hold the two against each other.
//
// It has Envoy's rules as one worker thread plays them: connections are made without
// delay, and belong to one endpoint.
package upstream
