package epp

import (
	"fmt"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/windtunnel/windtunnel/core/epp/stream"
)

// A request with more headers than are taken is answered with 431. A response
// with as many passes: it is the pool's own, and the work grows with their
// number alone.
func TestManyHeaders(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprint("x-header-", i), "v")
	}
	k := picking(t, "plugins: [{type: queue-scorer}]", 1)
	rig := startWire(t, k)
	if a := rig.open(many...).next().GetImmediateResponse(); a.GetStatus().GetCode() != 431 {
		t.Errorf("got %v", a)
	}
	s := rig.open(many[:2*(stream.MaxHeaders-2)]...)
	for s.next().GetRequestBody() == nil {
	}
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: headMessage(append([]string{":status", "200"}, many...)...)}})
	if n := len(s.next().GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()); n != 10_002 {
		t.Errorf("%d response headers came back", n)
	}
}
