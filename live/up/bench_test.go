package up

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// A change of one endpoint of 1,000, with 200 routes beside it, until Envoy has
// taken it: all that lies between an edited file and traffic that follows.
func BenchmarkApply(b *testing.B) {
	var sets [2]*gateway.Set
	for k := range sets {
		var text strings.Builder
		text.WriteString(oneGateway() +
			"\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: s}, ports: [{port: " +
			"80}]}\n")
		for i := range 1000 {
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d, labels: {app: s}}\nstatus: "+
				"{podIP: 10.%d.%d.%d, conditions: [{type: Ready, status: \"True\"}]}\n", i, k*b2i(i == 0), i/250,
				i%250+1)
		}
		for i := range 200 {
			text.WriteString(leadTo(fmt.Sprintf("/r%d", i), dict{"name": "s", "port": 80}))
		}
		sets[k] = &gateway.Set{}
		if err := sets[k].Add("bench.yaml", []byte(text.String())); err != nil {
			b.Fatal(err)
		}
	}
	u, err := Start(b.Context(), Options{Objects: sets[0], Dir: b.TempDir(), OwnAddresses: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := u.Stop(b.Context()); err != nil {
			b.Error(err)
		}
	}()
	for i := 0; b.Loop(); i++ {
		if err := u.Apply(b.Context(), sets[1-i%2]); err != nil {
			b.Fatal(err)
		}
	}
	gate.AtMost(b, float64(u.Startup.Milliseconds()), "ms/start", 600)
	gate.AtMost(b, float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/change", 50)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What the chain costs: the same request to the same pods through plain Envoy, with an
// endpoint picker, and with a body-based router and a picker. The three take turns, so
// that what else the machine does concerns all of them.
func BenchmarkChain(b *testing.B) {
	s := &gateway.Set{}
	manifests := suiteGateway("plain", 80) + suiteGateway("chained", 81) + echoes("one", 2) +
		suiteRoute("plain", "plain", "", "/plain", dict{"name": "one", "port": 8080}) +
		suiteRoute("picked", "plain", "", "/picked", pool("one")) +
		strings.Replace(leadByBase("one"), `"parentRefs":[{"name":"g"}]`, `"parentRefs":[{"name":"chained"}]`, 1) +
		router("default", "- m") + insertion("chained")
	if err := s.Add("bench.yaml", []byte(manifests)); err != nil {
		b.Fatal(err)
	}
	u, err := Start(b.Context(), Options{Objects: s, Dir: b.TempDir(), OwnAddresses: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := u.Stop(b.Context()); err != nil {
			b.Error(err)
		}
	}()
	at := map[int]string{}
	for _, l := range u.Addresses().Listeners {
		at[l.Port] = l.URL
	}
	ways := []string{at[80] + "/plain/v1/chat/completions", at[80] + "/picked/v1/chat/completions",
		at[81] + "/v1/chat/completions"}
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	body := strings.Replace(chat, "hi", strings.Repeat("a prompt of some length ", 40), 1)
	var took [3][]float64
	ask := func(k int) {
		began := time.Now()
		resp, err := client.Post(ways[k], "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%s: %d (%v)", ways[k], resp.StatusCode, err)
		}
		took[k] = append(took[k], float64(time.Since(began).Microseconds()))
	}
	for range 50 {
		for k := range ways {
			ask(k)
		}
	}
	took = [3][]float64{}
	for b.Loop() {
		for k := range ways {
			ask(k)
		}
	}
	median := func(k int) float64 { slices.Sort(took[k]); return took[k][len(took[k])/2] }
	plain := median(0)
	b.ReportMetric(plain, "µs/plain")
	b.ReportMetric(median(1)-plain, "µs-added/picker")
	b.ReportMetric(median(2)-plain, "µs-added/chain")
	gate.AtMost(b, median(1)/plain, "x-plain/picker", 6)
	gate.AtMost(b, median(2)/plain, "x-plain/chain", 10)
}

// insertion puts the body-based router before one Gateway alone.
func insertion(gateway string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: bbr}
spec: {selector: {app: bbr}, ports: [{port: 9004}]}
---
apiVersion: networking.gke.io/v1
kind: GCPRoutingExtension
metadata: {name: bbr}
spec: {gatewayRefs: [{kind: Gateway, name: %s}], extensionChains: [{extensions: [{backendRef: {kind: Service, name: bbr}}]}]}
`, gateway)
}
