package gateway

import (
	"encoding/json"
	"slices"
)

// KVEvents holds what a model server's command line and environment say of the events of its
// KV cache.
type KVEvents struct {
	// Document says that they have document 003's form, and else vLLM's.
	Document bool
	// IntervalMillis is how long an event waits for others, "" where nothing is said.
	IntervalMillis string
}

// KVEvents are those that the container's model server publishes, nil where it does not.
func (c *Container) KVEvents() *KVEvents {
	env := func(name string) string { v, _ := c.env(name); return v }
	if v, on := c.Flag("enable-kv-events"); on && v != "false" || env("VLLM_KV_EVENT_ENABLED") == "true" {
		return &KVEvents{true, env("VLLM_KV_EVENT_INTERVAL_MS")}
	}
	var config struct {
		On bool `json:"enable_kv_cache_events"`
	}
	if v, _ := c.Flag("kv-events-config"); json.Unmarshal([]byte(v), &config) == nil && config.On {
		return new(KVEvents)
	}
	return nil
}

// RunsKVManager says whether a KV-Cache Manager is among the workloads.
func (s *Set) RunsKVManager() bool {
	return slices.ContainsFunc(s.Workloads,
		func(w Workload) bool { return w.With(RoleKVManager) != nil && w.Replicas > 0 })
}
