package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// headerServed is the header in which the Gateway API inference extension's conformance tests expect the endpoint that
// answered.
const headerServed = "x-conformance-test-served-endpoint"

// servedVerifier is destination-endpoint-served-verifier. It reports to the client the endpoint that Envoy names as the
// server of the request, or the reason for the lack of one.
type servedVerifier struct{ named }

// ResponseHeader writes the endpoint into the response.
func (v *servedVerifier) ResponseHeader(_ machine.Time, r *picker.Response) {
	switch s := r.Served; {
	case !s.Given:
		r.SetHeader(headerServed, "fail: missing envoy lb metadata")
	case !s.Known:
		r.SetHeader(headerServed, "fail: missing destination endpoint served metadata")
	default:
		r.SetHeader(headerServed, s.Endpoint)
	}
}
