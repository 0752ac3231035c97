package program

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/scenario"
)

// Hops that were measured take the place of a scenario's; what was not measured stays.
func TestMeasuredHops(t *testing.T) {
	s, err := scenario.Parse("a.yaml",
		[]byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], hops: {sidecar: 7us}}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := hopsFrom(s, &hops.Times{Network: "110us", Envoy: "lognormal(60us, 5us)", Scrape: "0"}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string][2]string{"network": {s.Hops.Network.String(), "110us"},
		"envoy": {s.Hops.Envoy.String(), "lognormal(60us, 5us)"}, "sidecar": {s.Hops.Sidecar.String(), "7us"}} {
		if strings.ReplaceAll(x[0], "µ", "u") != x[1] {
			t.Errorf("%s takes %s, expected %s", name, x[0], x[1])
		}
	}
	if err := hopsFrom(s, &hops.Times{Network: "soon"}); err == nil {
		t.Error("a hop that is no time is taken")
	}
}
