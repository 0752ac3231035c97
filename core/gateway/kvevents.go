package gateway

import (
	"encoding/json"
	"slices"
)

// KVEvents holds the settings for KV cache events in a model server's command line and environment.
type KVEvents struct {
	// Document says that the events have document 003's form instead of vLLM's.
	Document bool
	// IntervalMillis is how long an event waits for others, in milliseconds, or "" where it is not set.
	IntervalMillis string
}

// KVEvents returns the event settings of the container's model server, or nil where it publishes none.
func (c *Container) KVEvents() *KVEvents {
	env := func(name string) string { v, _ := c.Variable(name); return v }
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

// RunsKVManager reports whether a KV-Cache Manager is among the workloads.
func (s *Set) RunsKVManager() bool {
	return slices.ContainsFunc(s.Workloads,
		func(w Workload) bool { return w.With(RoleKVManager) != nil && w.Replicas > 0 })
}
