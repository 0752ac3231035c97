package connector_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// For every connector, Fetch returns for a kept cache what the decode server reads in the bytes of its leg.
func TestFetchSaysWhatTheBytesSay(t *testing.T) {
	t.Parallel()
	tried := 0
	rapid.Check(t, func(t *rapid.T) {
		kept := &connector.Kept{EngineID: rapid.SampledFrom([]string{"", "engine-1"}).Draw(t, "engine"), RequestID: "r",
			Host: rapid.SampledFrom([]string{"", "10.0.0.2", "::1"}).Draw(t, "host"),
			Port: rapid.IntRange(1, 65535).Draw(t, "port"), TensorParallel: rapid.IntRange(0, 8).Draw(t, "tp"),
			Blocks: connector.Blocks{First: rapid.IntRange(0, connector.BlockNumbers-1).Draw(t, "first"),
				Count: rapid.IntRange(0, 100).Draw(t, "count")}}
		if rapid.IntRange(0, 9).Draw(t, "nothing kept") == 0 {
			kept = nil
		}
		for _, c := range connector.All {
			if c.Fetch == nil {
				continue
			}
			tried++
			at := connector.At{Connector: c.Name}
			r := &connector.Request{Path: "/v1/chat/completions", Body: jsonobject.Object{"model": "m"},
				Host: "10.0.0.2", Port: 8000, MoRIIO: &connector.MoRIIO{}}
			read := func(body jsonobject.Object) connector.Params {
				raw, err := json.Marshal(body["kv_transfer_params"])
				if err != nil {
					t.Fatal(err)
				}
				k, bad := at.Read(&openai.Sampling{KVTransferParams: raw})
				if bad != nil {
					t.Fatal(bad)
				}
				return k
			}
			prefill, _ := c.Prefill(r)
			first := read(prefill)
			answer := jsonobject.Object{}
			if kept != nil {
				answer["kv_transfer_params"] = map[string]any(first.Answer(kept))
			}
			decode, _ := c.Decode(r, answer)
			got, want := c.Fetch(kept), read(decode)
			if !reflect.DeepEqual(got, want.Remote) {
				t.Fatalf("%s: %+v, and of the bytes %+v", c.Name, got, want.Remote)
			}
			if want.Keep || want.Source != nil || want.Key != "" || want.OneToken {
				t.Fatalf("%s: the decode leg's %+v has more than whence to fetch", c.Name, want)
			}
		}
	})
	if tried == 0 {
		t.Error("no connector has Fetch")
	}
}
