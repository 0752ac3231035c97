package modelserver

import (
	"strings"
	"testing"
)

// said returns the current value of a server's series that has no labels of its own.
func said(t *testing.T, s *Server, name string) float64 {
	t.Helper()
	page, ok := s.page()
	if !ok {
		t.Fatal("the server is stopping")
	}
	if other := s.reader.Connector.Metrics; other != "" {
		name = strings.Replace(name, ":nixl_", ":"+other+"_", 1)
	}
	return value(t, string(page), name)
}

// The names of what tests ask about transfers.
const (
	saidBytes   = "vllm:nixl_bytes_transferred_sum"
	saidSeconds = "vllm:nixl_xfer_time_seconds_sum"
	saidMoved   = "vllm:nixl_xfer_time_seconds_count"
	saidPosted  = "vllm:nixl_post_time_seconds_count"
	saidBlocks  = "vllm:nixl_num_descriptors_sum"
	saidFailed  = "vllm:nixl_num_failed_transfers_total"
	saidExpired = "vllm:nixl_num_kv_expired_reqs_total"
	saidHits    = "vllm:external_prefix_cache_hits_total"
)

// Document 003's figures of the KV cache hold for a server without KV events: its content when it is idle, how much of
// that can be found, and a hit rate in which blocks from another server are no hits.
func TestDocumentCacheFigures(t *testing.T) {
	t.Parallel()
	p := startPair(t, func(o *ServerOptions) {
		*o = batchedLong()
		o.Engine.KVBytesPerToken = 1000
	})
	const rate, size, hashes = "vllm_kv_cache_hit_rate", "vllm_kv_cache_size_bytes", "vllm_kv_cache_prefix_hashes"
	prompt := strings.Repeat("a prompt of many words, ", 40) // 960 bytes, 240 tokens, 15 blocks
	pre := p.ask(p.prefill, `{"prompt":"`+prompt+`","max_tokens":1,`+remoteDecode+`}`)
	p.ask(p.decode, `{"prompt":"`+prompt+`","max_tokens":4,"kv_transfer_params":`+string(pre.KV)+`}`)
	p.waitFor("the prefill server's blocks are free", func() bool { return p.held() == 0 })
	for _, s := range []*Server{p.prefill, p.decode} {
		if r, n, b := said(t, s, rate), said(t, s, hashes), said(t, s, size); r != 0 || n < 14 || b < n*16*1000 {
			t.Errorf("%s: hit rate %v, %v blocks can be found, of %v bytes", s.Name(), r, n, b)
		}
	}
	p.ask(p.decode, `{"prompt":"`+prompt+`","max_tokens":4}`)
	if r := said(t, p.decode, rate); r < .4 || r > .5 { // the second prompt's, of two
		t.Errorf("hit rate %v", r)
	}
}
