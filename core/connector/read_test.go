package connector_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/connector"
	"github.com/windtunnel/windtunnel/core/openai"
)

func TestNames(t *testing.T) {
	t.Parallel()
	if c, err := connector.Named("NIXLv2"); c != connector.NIXLv2 || err != nil {
		t.Errorf("%v %v", c, err)
	}
	if _, err := connector.Named("pigeon"); err == nil || !strings.Contains(err.Error(), `connector "pigeon" is not known; expected one of nixlv2, shared-storage, sglang, mooncake, offloading, nixl, lmcache`) {
		t.Error(err)
	}
}

// FuzzRead: whatever a request says of a cache is read or refused, and a cache that is named can be asked for.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2],["3"]],"remote_engine_id":"e","remote_host":"h","remote_port":"5600"}`), []byte("7"), false)
	f.Add([]byte(`{"do_remote_prefill":true,"transfer_id":"t","remote_bootstrap_addr":"http://h:1"}`), []byte(nil), true)
	f.Add([]byte(`{"remote_decoder":{"kv_request_id":"k"},"remote_kv_source":{"remote_port":3}}`), []byte(nil), true)
	f.Fuzz(func(t *testing.T, raw, room []byte, here bool) {
		at := connector.At{Connector: connector.SGLang.Name, MeetsAt: func(string, int) bool { return here }}
		k, bad := at.Read(&openai.Sampling{KVTransferParams: raw, BootstrapRoom: room, BootstrapHost: []byte(`"h"`), BootstrapPort: []byte("1")})
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
