package dropin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
)

// environment reads the variables of document 003, vLLM and llm-d-inference-sim. Flags override them.
func (r *Result) environment(env func(string) (string, bool)) error {
	number := func(name string, low, high int, to *int) error {
		v, ok := env(name)
		if !ok || v == "" {
			return nil
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("environment %s: expected a whole number from %d to %d, got %q", name, low, high, v)
		}
		*to = n
		return nil
	}
	truth := func(name string) (bool, error) {
		v, ok := env(name)
		if !ok || v == "" {
			return false, nil
		}
		b, err := strconv.ParseBool(v)
		if err != nil {
			return false, fmt.Errorf("environment %s: expected true or false, got %q", name, v)
		}
		return b, nil
	}
	events, err := truth("VLLM_KV_EVENT_ENABLED")
	if err != nil {
		return err
	}
	if events {
		e := r.events()
		e.Enabled, e.Document, e.Connect = true, true, true
		if v, ok := env("VLLM_KV_EVENT_ZMQ_ENDPOINT"); ok {
			e.Endpoint = v
			e.Connect = !wildcard(v)
		}
		if err := number("VLLM_KV_EVENT_INTERVAL_MS", 0, 60_000, &e.IntervalMillis); err != nil {
			return err
		}
	}
	hold := 0
	if err := cmp.Or(
		number("VLLM_KV_BLOCK_SIZE", 1, 4096, &r.Engine.BlockSize),
		number("VLLM_NIXL_SIDE_CHANNEL_PORT", 1, 65535, &r.SideChannelPort),
		number("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", 1, 86_400, &hold),
		number("VLLM_MOONCAKE_BOOTSTRAP_PORT", 1, 65535, &r.BootstrapPort)); err != nil {
		return err
	}
	r.Engine.KVHoldTimeout = machine.Time(hold) * machine.Second
	if r.StoreResponses, err = truth("VLLM_ENABLE_RESPONSES_API_STORE"); err != nil {
		return err
	}
	if r.NCCLIBDisable, err = truth("NCCL_IB_DISABLE"); err != nil {
		return err
	}
	for name, to := range map[string]*string{
		"VLLM_NIXL_SIDE_CHANNEL_HOST": &r.SideChannelHost, "UCX_TLS": &r.UCXTLS, "POD_NAME": &r.PodName,
		"POD_NAMESPACE": &r.PodNamespace, "POD_IP": &r.PodIP,
	} {
		if v, ok := env(name); ok {
			*to = v
		}
	}
	if level, ok := env("NCCL_DEBUG"); ok && level != "" {
		r.Notes = append(r.Notes, "NCCL_DEBUG has no effect: no NCCL runs that could log")
	}
	if key, ok := env("VLLM_API_KEY"); ok && key != "" {
		r.APIKeys = append(r.APIKeys, key)
	}
	return nil
}

func jsonOf(v any) (string, error) {
	raw, err := json.Marshal(v)
	return string(raw), err
}
