package header

import "strings"

// usual holds names that nearly every request or response has.
var usual = func() map[string]string {
	out := map[string]string{}
	for _, name := range [...]string{":authority", ":method", ":path", ":scheme", ":status", "accept",
		"accept-encoding", "authorization", "content-length", "content-type",
		"date", "server", "traceparent", "transfer-encoding", "user-agent", "x-envoy-expected-rq-timeout-ms",
		"x-envoy-upstream-service-time", "x-forwarded-for",
		"x-forwarded-proto", "x-request-id"} {
		out[name] = name
	}
	return out
}()

// Lower returns a name in lower case. For usual names it allocates no memory.
func Lower(name []byte) string {
	if s, ok := usual[string(name)]; ok {
		return s
	}
	return strings.ToLower(string(name))
}
