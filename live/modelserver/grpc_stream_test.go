package modelserver

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/live/modelserver/grpcapi"
	"github.com/windtunnel/windtunnel/live/modelserver/vllmservice"
)

// A subscriber receives the events of blocks as they happen. One that comes back continues where it was.
func TestGRPCSubscribe(t *testing.T) {
	t.Parallel()
	o := batched()
	var c collector
	o.KVEvents = func(_, _ string) (KVPublisher, error) { return &c, nil }
	b := start(t, o)
	client := vllmservice.NewVllmEngineClient(dial(t, b))
	ctx, leave := context.WithCancel(t.Context())
	live, err := client.SubscribeKvEvents(ctx, &vllmgrpc.SubscribeKvEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Header(); err != nil { // subscribed
		t.Fatal(err)
	}
	b.post("/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":2}`)
	first, err := live.Recv()
	if err != nil {
		t.Fatal(err)
	}
	stored := first.Events[0].GetStored()
	if first.SequenceNumber != 1 || len(stored.GetBlocks()) != 2 || stored.Blocks[0].BlockSize != 4 ||
		stored.Blocks[1].TokenIds[3] != 8 || stored.ParentBlockHash != nil {
		t.Fatal(first)
	}
	leave()
	if _, err := live.Recv(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	b.post("/reset_prefix_cache", "")
	again, err := client.SubscribeKvEvents(t.Context(), &vllmgrpc.SubscribeKvEventsRequest{StartSequenceNumber: 1})
	if err != nil {
		t.Fatal(err)
	}
	for want := uint64(1); ; want++ {
		m, err := again.Recv()
		if err != nil || m.SequenceNumber != want {
			t.Fatal(m, err)
		}
		if m.Events[0].GetCleared() != nil {
			break
		}
	}
	if _, err := again.Header(); err != nil {
		t.Fatal(err)
	}
	b.until("nothing runs", b.idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range grpcapi.FeedLength + 1 { // so far back nothing is kept
		b.feed.Add(c.events[i%len(c.events)])
	}
	late, err := client.SubscribeKvEvents(t.Context(), &vllmgrpc.SubscribeKvEventsRequest{StartSequenceNumber: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Recv(); status.Code(err) != codes.OutOfRange {
		t.Error(err)
	}
}

func TestGRPCSubscribeToNothing(t *testing.T) {
	t.Parallel()
	s, err := vllmservice.NewVllmEngineClient(dial(t, start(t, batched()))).SubscribeKvEvents(t.Context(),
		&vllmgrpc.SubscribeKvEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

func TestGRPCTokenizer(t *testing.T) {
	t.Parallel()
	get := func(file []byte) ([]byte, string, error) {
		o := batched()
		o.TokenizerJSON = file
		s, err := vllmservice.NewVllmEngineClient(dial(t, start(t, o))).GetTokenizer(t.Context(),
			&vllmgrpc.GetTokenizerRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for {
			m, err := s.Recv()
			if err != nil {
				return all, "", err
			}
			if all = append(all, m.Data...); m.Sha256 != "" {
				_, err := s.Recv()
				return all, m.Sha256, err
			}
		}
	}
	if _, _, err := get(nil); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	file := []byte(`{"version":"1.0"}`)
	all, sum, err := get(file)
	if want := sha256.Sum256(all); !errors.Is(err, io.EOF) || sum != hex.EncodeToString(want[:]) {
		t.Fatal(sum, err)
	}
	z, err := zip.NewReader(bytes.NewReader(all), int64(len(all)))
	if err != nil || len(z.File) != 1 || z.File[0].Name != "tokenizer.json" {
		t.Fatal(z, err)
	}
	f, err := z.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, file) {
		t.Fatal(got, err)
	}
}

// GetLoads says what /metrics says.
func TestGRPCLoads(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	body := `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":2}`
	b.post("/v1/completions", body)
	b.post("/v1/completions", body)
	r, err := vllmservice.NewVllmEngineClient(dial(t, b)).GetLoads(t.Context(), &vllmgrpc.GetLoadsRequest{})
	if err != nil || len(r.Loads) != 1 {
		t.Fatal(r, err)
	}
	if l := r.Loads[0]; l.CacheHitRate != 8.0/18 || l.NumTotalReqs != 0 || l.TokenUsage != 0 ||
		l.MaxRunningRequests != 8 || l.MaxTotalNumTokens != 256 {
		t.Error(l)
	}
}
