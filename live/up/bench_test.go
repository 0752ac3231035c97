package up

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// A change of one endpoint of 1,000, with 200 routes beside it, until Envoy has
// taken it: all that lies between an edited file and traffic that follows.
func BenchmarkApply(b *testing.B) {
	var sets [2]*gateway.Set
	for k := range sets {
		var text strings.Builder
		text.WriteString(oneGateway() + "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: s}, ports: [{port: 80}]}\n")
		for i := range 1000 {
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d, labels: {app: s}}\nstatus: {podIP: 10.%d.%d.%d, conditions: [{type: Ready, status: \"True\"}]}\n", i, k*b2i(i == 0), i/250, i%250+1)
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
