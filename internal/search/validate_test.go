package search

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/report/hops"
)

// Measured hops replace a scenario's; a hop that was not measured stays.
func TestMeasuredHops(t *testing.T) {
	v := Variant{File: "a.yaml",
		Text: []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], hops: {sidecar: 7us}}")}
	with := v.WithHops(&hops.Times{Network: "110us", Envoy: "lognormal(60us, 5us)", Scrape: "0"})
	s, err := with.Scenario(0)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string][2]string{"network": {s.Hops.Network.String(), "110us"},
		"envoy": {s.Hops.Envoy.String(), "lognormal(60us, 5us)"}, "sidecar": {s.Hops.Sidecar.String(), "7us"}} {
		if strings.ReplaceAll(x[0], "µ", "u") != x[1] {
			t.Errorf("%s takes %s, expected %s", name, x[0], x[1])
		}
	}
	with = v.WithHops(&hops.Times{Network: "soon"})
	if _, err := with.Scenario(0); err == nil {
		t.Error("a hop that is no time is accepted")
	}
}
