// Package proxy states Envoy's own behaviour with requests: how long it waits and holds, what it sends to an endpoint
// picker, in which order it asks a picker's replicas, and what it answers in place of a picker or a model server.
//
// live/envoy writes the real Envoy's configuration from these values, and virtual applies them. Attempts at model
// servers, with retries, breakers and health checks, are a machine of their own: core/gateway/upstream. Each statement
// was measured on the real Envoy (docs/envoy.md). Begin with Limits and Pickers.
package proxy
