package connector_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

func TestNames(t *testing.T) {
	t.Parallel()
	if c, err := connector.Named("NIXLv2"); c != connector.NIXLv2 || err != nil {
		t.Errorf("%v %v", c, err)
	}
	if _, err := connector.Named("pigeon"); err == nil ||
		!strings.Contains(err.Error(),
			`connector "pigeon" is not known; expected one of nixlv2, shared-storage, sglang, mooncake, offloading, `+
				`nixl, lmcache`) {
		t.Error(err)
	}
}

// A server reads every connector's parameters, however their names are written.
func TestRead(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`null`:                      "",
		`{"do_remote_decode":true}`: "kept as , named",
		`{"do_remote_decode":true,"transfer_id":"t"}`:                        "kept as transfer t",
		`{"do_remote_decode":true,"transfer\u005fid":"t"}`:                   "kept as transfer t",
		`{"do_remote_decode":true,"transfer_id":"t","remote_notify_port":1}`: "kept as transfer t, named",
		`{"remote_decoder":{"kv_request_id":"k"}}`:                           "kept as peer k",
		`{"remote_prefiller":{"kv_request_id":"k","remote_host":"h"}}`:       "peer k of h:0",
		`{"remote_kv_source":{"kv_request_id":"k","remote_host":"h"}}`:       "from h:0",
		`{"remote_engine_id":"e"}`:                                           "",
		`{"remote_decoder":5}`: "kv_transfer_params: " +
			"remote_decoder: expected an object, got number.",
		`{"do_remote_prefill":true,"remote_host":"h","remote_port":"x"}`: "kv_transfer_params.remote_port: " +
			"expected a port, 0 to 65535, got \"x\".",
		`{"do_remote_prefill":true,"transfer_id":"t","remote_bootstrap_addr":"h"}`: "kv_transfer_params.remote_bootstrap_addr: \"h\" is no address such as http://10.0.0.5:8998.",
	} {
		at := connector.At{Connector: connector.NIXLv2.Name}
		k, bad := at.Read(&openai.Sampling{KVTransferParams: []byte(raw)})
		got := ""
		if bad != nil {
			got = bad.Message
		}
		if k.Keep {
			got = "kept as " + k.Key
		}
		if k.Answer != nil {
			got += ", named"
		}
		if k.Remote != nil {
			got = k.Remote.Key + " of " + k.Remote.Address()
		}
		if k.Source != nil {
			got = "from " + k.Source.Address()
		}
		if got != want {
			t.Errorf("%s: %q, expected %q", raw, got, want)
		}
	}
}

// FuzzRead: whatever a request says of a cache is read or refused, and a cache that is named can be asked for.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2],["3"]],"remote_engine_id":"e",`+
		`"remote_host":"h","remote_port":"5600"}`), []byte("7"), false)
	f.Add([]byte(`{"do_remote_prefill":true,"transfer_id":"t","remote_bootstrap_addr":"http://h:1"}`), []byte(nil),
		true)
	f.Add([]byte(`{"remote_decoder":{"kv_request_id":"k"},"remote_kv_source":{"remote_port":3}}`), []byte(nil), true)
	f.Fuzz(func(t *testing.T, raw, room []byte, here bool) {
		at := connector.At{Connector: connector.SGLang.Name, MeetsAt: func(string, int) bool { return here }}
		k, bad := at.Read(&openai.Sampling{KVTransferParams: raw, BootstrapRoom: room, BootstrapHost: []byte(`"h"`),
			BootstrapPort: []byte("1")})
		switch {
		case bad != nil:
			if bad.Status != 400 || bad.Message == "" {
				t.Fatalf("%+v", bad)
			}
		case k.Remote != nil && k.Remote.Key == "" && k.Remote.Blocks.Count == 0:
			t.Fatal("a remote without blocks")
		case k.Answer != nil:
			k.Answer(&connector.Kept{})
		}
	})
}
