package scenario

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
)

// The pool of the one-line form, the plain template, and pools without a configuration have the picker's own default.
func TestDefaultPicker(t *testing.T) {
	name, text := Builtin(DeployedFile)
	for name, text := range map[string][]byte{name: text, "plain": Template("plain"),
		"none":    []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}]}"),
		"sidecar": []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a, sidecar: routing}]}"),
		"gRPC": []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], " +
			"workload: {api: grpc-generate}}")} {
		s, err := Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.Pools[0].EPP.Config.Read()
		if err != nil {
			t.Fatal(err)
		}
		words := func(c *config.Config) (out []string) {
			for _, p := range c.Plugins {
				out = append(out, p.Type)
			}
			for _, f := range c.SchedulingProfiles {
				for _, p := range f.Plugins {
					out = append(out, f.Name, p.PluginRef, fmt.Sprint(*p.Weight))
				}
			}
			return out
		}
		if d := cmp.Diff(words(config.Default()), words(found)); d != "" {
			t.Errorf("%s has another configuration (+) than llm-d's default (-):\n%s", name, d)
		}
	}
}

// Pickers probe the readiness of servers that an incident or a user of the page can stop, and no others.
func TestReadinessIsProbed(t *testing.T) {
	for incident, want := range map[string]bool{"": false, "{at: 1s, what: crash}": true,
		"{at: 1s, what: delay-server, delay: 1s}": true, "{at: 1s, what: restart-epp}": false} {
		s, err := Parse("x.yaml", []byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, "+
			"pools: [{name: a, incidents: ["+incident+"]}]}"))
		if err != nil {
			t.Fatal(err)
		}
		for _, byHand := range []bool{false, true} {
			if byHand {
				s.ReservePlaces()
			}
			p, err := s.Plan()
			if err != nil || p.Pools[0].Picker.Readiness != (want || byHand) {
				t.Errorf("incident %q, by hand %t: %v, %v", incident, byHand, p.Pools[0].Picker.Readiness, err)
			}
		}
	}
}
