package dropin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/modelserver/kvtransfer"
)

// transfer chooses the connector by vLLM's names, and by UCX_TLS whether it
// has RDMA.
func (r *Result) transfer() (kvtransfer.NetworkOptions, error) {
	var t kvtransfer.NetworkOptions
	if r.KVTransferLatency.Set() || r.KVTransferTimePerToken.Set() {
		return r.givenTransfer()
	}
	if r.KVTransfer == nil {
		return t, nil
	}
	t.Profile = link.VLLMProfile(r.KVTransfer.Connector)
	if !link.UCXHasRDMA(r.UCXTLS) || r.NCCLIBDisable {
		t.Profile = t.Profile.WithoutRDMA()
	}
	return t, nil
}

// givenTransfer makes a link of llm-d-inference-sim's flags: a time for the
// whole cache, or one for each of its tokens.
func (r *Result) givenTransfer() (kvtransfer.NetworkOptions, error) {
	var t kvtransfer.NetworkOptions
	whole, each := machine.Time(0), machine.Time(0)
	for _, x := range []struct {
		flag   string
		timing Timing
		to     *machine.Time
	}{{"kv-cache-transfer-latency", r.KVTransferLatency, &whole}, {"kv-cache-transfer-time-per-token", r.KVTransferTimePerToken, &each}} {
		if x.timing.Set() {
			d, err := parseSpan(x.timing.Mean)
			if err != nil {
				return t, fmt.Errorf("--%s: %w", x.flag, err)
			}
			*x.to = d
		}
	}
	if whole > 0 {
		each = 0 // the whole counts
	}
	speed := int64(fastest)
	if each > 0 {
		speed = min(fastest, engineKVBytes*int64(machine.Second)/int64(each))
	}
	if speed < slowest {
		return t, fmt.Errorf("--kv-cache-transfer-time-per-token: expected at most 16ms, got %q", r.KVTransferTimePerToken.Mean)
	}
	t.Profile = link.Profile{Name: "given", Handshake: whole, RDMAPermille: 1000, Streams: 1, StreamBytesPerSecond: speed}
	t.NIC = link.Wire{BytesPerSecond: speed, RDMA: true}
	return t, nil
}

// fastest and slowest are core/link's limits of a wire, in bytes per second.
const fastest, slowest = 1e14, 8e6

// engineKVBytes is the engine's default of KV bytes per token.
const engineKVBytes = 131072

// readTokenizer reads a tokenizer.json; a model's name, which vLLM would fetch,
// is not one.
func readTokenizer(path string) (t tokens.Tokenizer, raw []byte, err error) {
	if path == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		if !strings.HasSuffix(path, ".json") {
			return nil, nil, nil // a name in a registry; nothing is fetched
		}
		return nil, nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	if raw, err = files.Read(path, tokens.MaxFileBytes); err != nil {
		return nil, nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if t, err = tokens.ParseTokenizerJSON(raw); err != nil {
		return nil, nil, fmt.Errorf("--tokenizer %s: %w", path, err)
	}
	return t, raw, nil
}
