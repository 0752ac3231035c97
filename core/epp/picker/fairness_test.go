package picker_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// A flow is remembered by the name that a client gave it; one that is longer than a
// name may be goes by a digest, equal for equal names.
func TestLongFairnessIDs(t *testing.T) {
	cfg, err := config.Read("epp.yaml", []byte("plugins: [{type: queue-scorer}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	flow := func(id string) string {
		r, fault := p.NewRequest(
			header.List{{Name: ":path", Value: "/v1/completions"}, {Name: picker.HeadersFairness[0], Value: id}},
			[]byte(`{"model":"m","prompt":"hello"}`), true, 1)
		if fault == nil {
			_, fault = p.Prepare(0, r)
		}
		if fault != nil {
			t.Fatal(fault)
		}
		return r.FairnessID
	}
	long := strings.Repeat("x", 60_000)
	if a, b, c := flow(long), flow(long), flow(long+"y"); len(a) > 100 || a != b || a == c {
		t.Errorf("%.200s, %.200s and %.200s", a, b, c)
	}
	for _, id := range []string{"tenant-a", strings.Repeat("x", 1024)} {
		if got := flow(id); got != id {
			t.Errorf("%.100s became %s", id, got)
		}
	}
}
