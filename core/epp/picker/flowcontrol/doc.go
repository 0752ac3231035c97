// Package flowcontrol is the endpoint picker's admission and flow control. It decides when a request may proceed to
// scheduling, in which order waiting requests leave, and which requests are refused, expire or are evicted.
//
// A request arrives with a priority and a fairness id. Requests of one priority form a band; requests of one band and
// fairness id form a flow. Three policies choose the next request: the highest band first, in it the flow that the
// band's fairness policy picks, in that the request that comes first by its ordering policy. While the pool's
// saturation is at or above a band's ceiling, no request leaves that band or a lower one: lower bands must not take the
// capacity that a higher band waits for.
//
// Controller is the machine (core/machine describes machines). The driver reports arrivals, requests whose clients
// left, the endpoints' load, and requests that were placed and finished. The machine answers every arrival exactly once
// with its outcome (Decided). If in-flight eviction is enabled, it also names running requests to end early (Evict).
//
// A driver sends Pool when endpoints are added or removed, LoadChanged (or Pool again) when their metrics change, and
// Objectives when those change. It sends Arrive for a request with a body. On a Dispatched outcome it schedules the
// request, counts it in its endpoint's Load, and sends Placed. Every request ends with one Done or Gone. Flow control
// considers the whole pool; a request's subset matters only afterwards.
//
// The real picker dispatches at most one request at every arrival and once every millisecond. The machine keeps that
// pace, which determines how a queue drains, but wakes only for the milliseconds in which something can happen. A
// blocked or empty queue costs nothing.
//
// The rest of the package are rules that the picker also uses elsewhere: saturation detectors (which are also filters),
// shedding without flow control, the SLO and probabilistic admitters, and the exact answer of every refusal.
//
// Rules, defaults and texts are those of llm-d-router v0.10.0 (gate flowControl of EndpointPickerConfig), as recordings
// of the real one show. Where the real picker depends on chance, the machine is exact:
//
//   - The real concurrency-detector may overshoot its limit, because its counters rise only after
//     scheduling. Here a request counts from its dispatch.
//   - Queue space becomes free at once when a request expires or its client leaves; the real picker sweeps
//     once a second.
//   - A KV usage that is not a number counts as saturated, like missing metrics; the real picker then never
//     blocks.
package flowcontrol
