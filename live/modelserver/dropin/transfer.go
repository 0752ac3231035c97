package dropin

import (
	"fmt"
	"os"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// transfer chooses the connector by vLLM's names. UCX_TLS decides whether the connector uses RDMA.
func (r *Result) transfer() (enginecore.NetworkConfig, error) {
	var t enginecore.NetworkConfig
	if r.KVTransferLatency.Set() || r.KVTransferTimePerToken.Set() {
		return r.givenTransfer()
	}
	if r.KVTransfer == nil {
		return t, nil
	}
	t.Profile = connector.ProfileOf(r.KVTransfer.Connector)
	if !link.UCXHasRDMA(r.UCXTLS) || r.NCCLIBDisable {
		t.Profile = t.Profile.WithoutRDMA()
	}
	if r.KVCompression {
		t.Profile = t.Profile.Compressed()
	}
	return t, nil
}

// givenTransfer makes a link from llm-d-inference-sim's flags: a time for the whole cache, or one for each of its
// tokens.
func (r *Result) givenTransfer() (enginecore.NetworkConfig, error) {
	var t enginecore.NetworkConfig
	whole, each := machine.Time(0), machine.Time(0)
	if err := spans(spanFlag{"kv-cache-transfer-latency", r.KVTransferLatency, &whole},
		spanFlag{"kv-cache-transfer-time-per-token", r.KVTransferTimePerToken, &each}); err != nil {
		return t, err
	}
	deviation, flag := r.KVTransferTimePerToken.StdDev, "kv-cache-transfer-time-std-dev"
	if whole > 0 { // the time for the whole cache takes precedence
		each, deviation, flag = 0, r.KVTransferLatency.StdDev, "kv-cache-transfer-latency-std-dev"
	}
	if deviation != "" {
		var err error
		if t.Deviation, err = parseSpan(deviation); err != nil {
			return t, fmt.Errorf("--%s: %w", flag, err)
		}
	}
	speed := int64(fastest)
	if each > 0 {
		speed = min(fastest, engineKVBytes*int64(machine.Second)/int64(each))
	}
	if speed < slowest {
		return t, fmt.Errorf("--kv-cache-transfer-time-per-token: expected at most 16ms, got %q",
			r.KVTransferTimePerToken.Mean)
	}
	t.Profile = link.Profile{Name: "given", Handshake: whole, NoRDMA: true, Streams: 1, StreamBytesPerSecond: speed}
	t.NIC = link.Wire{BytesPerSecond: fastest} // transfers with a given time share no link
	return t, nil
}

// fastest and slowest are core/kv/link's limits of a wire, in bytes per second.
const fastest, slowest = 1e14, 8e6

// engineKVBytes is the engine's default of KV bytes per token.
const engineKVBytes = 131072

// readTokenizer reads a tokenizer.json, or the directory of a model with its chat template. It ignores a model's name,
// which vLLM would fetch. A chat template of its own needs no tokenizer.
func readTokenizer(so *modelserver.ServerOptions, path, template string, read func(string, int64) ([]byte,
	error)) error {
	info, err := os.Stat(path)
	switch {
	case path == "" || err != nil && !strings.HasSuffix(path, ".json"): // a name in a registry, which is not fetched
		if template == "" {
			return nil
		}
		text, err := read(template, chattemplate.MaxTemplateBytes)
		if err == nil {
			so.ChatTemplate, err = chattemplate.Parse(template, string(text), nil)
		}
		if err != nil {
			return fmt.Errorf("--chat-template: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("--tokenizer: %w", err)
	}
	var m *chattemplate.Model
	if info.IsDir() {
		m, err = chattemplate.Load(path, template, read)
	} else {
		m, err = chattemplate.LoadFile(path, template, read)
	}
	if err != nil {
		return fmt.Errorf("--tokenizer: %w", err)
	}
	so.Tokenizer, so.TokenizerJSON, so.ChatTemplate = m.Tokenizer, m.JSON, m.Template
	return nil
}
