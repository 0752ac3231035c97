package dropin

import "testing"

// vLLM's connector names, and where the servers find each other's caches.
func TestConnectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, env, profile, meeting, role string }{
		{config: `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`, profile: "nixlv2", role: "kv_both"},
		{config: `{"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}`, profile: "mooncake",
			role: "kv_producer"},
		{config: `{"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}`, env: "9100", profile: "mooncake",
			meeting: "127.0.0.1:9100", role: "kv_producer"},
		{config: `{"kv_connector":"OffloadingConnector","kv_port":7801}`, profile: "offloading",
			meeting: "127.0.0.1:7801"},
		{config: `{"kv_connector":"MultiConnector"}`, profile: "nixlv2", meeting: "127.0.0.1:7777"},
		{config: `{"kv_connector":"MoRIIOConnector"}`, profile: "nixlv2", meeting: "127.0.0.1:6301"},
		{config: `{"kv_connector":"LMCacheConnectorV1"}`, profile: "lmcache"},
		{config: `{"kv_connector":"SharedStorageConnector"}`, profile: "shared-storage"},
		{config: `{"kv_connector":"ExampleConnector"}`, profile: "shared-storage"},
		{config: `{"kv_connector":"P2pNcclConnector","kv_port":14579}`, profile: "nixl"},
		{config: `{"kv_connector":"sglang"}`, profile: "sglang"},
		{config: `{"kv_connector":"SomethingNew"}`, profile: "nixlv2"},
	} {
		r, err := Parse([]string{"m", "--kv-transfer-config", c.config},
			func(name string) (string, bool) { return c.env, name == "VLLM_MOONCAKE_BOOTSTRAP_PORT" && c.env != "" })
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.Fleet()
		if err != nil {
			t.Fatal(err)
		}
		if s := o.Servers[0]; o.Transfer.Profile.Name != c.profile || s.Meeting != c.meeting || s.KVRole != c.role {
			t.Errorf("%s: %s at %q as %q", c.config, o.Transfer.Profile.Name, s.Meeting, s.KVRole)
		}
	}
}
