package modelserver

import "testing"

// said is what a server's metrics say now of one series without labels of its
// own.
func said(t *testing.T, s *Server, name string) float64 {
	t.Helper()
	page, ok := s.page()
	if !ok {
		t.Fatal("the server is stopping")
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
