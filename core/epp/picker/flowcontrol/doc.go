// Package flowcontrol is the endpoint picker's admission and flow control: it
// decides when a request may go on to scheduling, in which order waiting
// requests leave, and which are refused, expire or are taken back.
//
// A request arrives with a priority and a fairness id. Requests of one
// priority form a band, requests of one band and fairness id a flow. Three
// policies choose who leaves next: the highest band first, inside it the flow
// that the band's fairness policy names, inside that the request that its
// ordering policy puts first. Nothing leaves a band while the pool's
// saturation is at or above the band's ceiling, and nothing below it either:
// lower work must not take the room that higher work waits for.
//
// Controller is the machine (see core/machine for its shape). The driver
// reports it of arrivals, of requests that went away, of the endpoints' load,
// and of requests that were placed and finished; it says, exactly once for
// every arrival, how that ended (Decided), and, when in-flight eviction is
// enabled, which running requests should be ended early (Evict).
//
// A driver sends Pool when endpoints come and go, LoadChanged (or Pool again)
// when their metrics change, and Objectives when those change. It sends Arrive
// for a request with a body, and on its Dispatched effect schedules it, counts
// it in its endpoint's Load, and sends Placed; whatever becomes of it, in the
// end comes one Done, or Gone. Flow control looks at the whole pool; a request's
// subset of it matters only afterwards.
//
// The real picker dispatches at most one request whenever one arrives and
// once every millisecond. The machine keeps that pace, since it shapes how a
// queue drains, but it only wakes for the milliseconds in which something can
// happen: a queue that is blocked, or empty, costs nothing however long it
// stays so.
//
// The rest of the package are the pure rules that the picker also uses
// elsewhere: saturation detectors (which are filters too), the shedding that
// happens without flow control, the SLO and probabilistic admitters, and the
// exact answer of every refusal.
//
// Rules, defaults and texts are those of llm-d-router v0.10.0 (gate
// flowControl of EndpointPickerConfig), observed in recordings of the real
// one. Where it depends on luck, the machine is exact:
//
//   - The real concurrency-detector may overshoot its limit, because its
//     counters rise only after scheduling. Here a dispatched request counts
//     from the moment of its dispatch.
//   - A queue's waiting room frees at once when a request expires or its
//     client leaves; the real one sweeps once a second.
//   - A KV usage that is not a number counts as saturated, like metrics that
//     are missing; the real one then never blocks.
package flowcontrol
