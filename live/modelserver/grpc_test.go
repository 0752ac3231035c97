package modelserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver/vllmservice"
)

func dial(t *testing.T, b *bench) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(b.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func ask(id string, tokens uint32, stream bool) *vllmgrpc.GenerateRequest {
	return &vllmgrpc.GenerateRequest{RequestId: id, Stream: stream,
		Input: &vllmgrpc.GenerateRequest_Tokenized{
			Tokenized: &vllmgrpc.TokenizedInput{InputIds: []uint32{1, 2, 3, 4, 5}}},
		SamplingParams: &vllmgrpc.SamplingParams{MaxTokens: &tokens, IgnoreEos: true}}
}

// receive reads a stream to its end.
func receive(t *testing.T,
	stream grpc.ServerStreamingClient[vllmgrpc.GenerateResponse]) (chunks []*vllmgrpc.GenerateStreamChunk,
	ends []*vllmgrpc.GenerateComplete, err error) {
	t.Helper()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return chunks, ends, nil
		}
		if err != nil {
			return chunks, ends, err
		}
		if c := m.GetChunk(); c != nil {
			chunks = append(chunks, c)
		} else {
			ends = append(ends, m.GetComplete())
		}
	}
}

func generateCall(t *testing.T, ctx context.Context, conn *grpc.ClientConn, q *vllmgrpc.GenerateRequest,
	opts ...grpc.CallOption) ([]*vllmgrpc.GenerateStreamChunk, []*vllmgrpc.GenerateComplete, error) {
	t.Helper()
	stream, err := vllmservice.NewVllmEngineClient(conn).Generate(ctx, q, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return receive(t, stream)
}

func TestGRPCGenerate(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	conn := dial(t, b)

	_, ends, err := generateCall(t, t.Context(), conn, ask("whole", 6, false))
	if err != nil || len(ends) != 1 {
		t.Fatal(ends, err)
	}
	end := ends[0]
	if len(end.OutputIds) != 6 || end.FinishReason != "length" || end.PromptTokens != 5 || end.CompletionTokens != 6 {
		t.Fatalf("%v", end)
	}

	chunks, ends, err := generateCall(t, t.Context(), conn, ask("whole", 6, true))
	if err != nil || len(ends) != 1 {
		t.Fatal(ends, err)
	}
	var ids []uint32
	for _, c := range chunks {
		if c.PromptTokens != 5 || int(c.CompletionTokens) != len(c.TokenIds) {
			t.Errorf("%v", c)
		}
		ids = append(ids, c.TokenIds...)
	}
	if diff := cmp.Diff(end.OutputIds, ids); diff != "" {
		t.Errorf("the same request, streamed, says something else (-whole +streamed):\n%s", diff)
	}
	if last := ends[0]; len(last.OutputIds) != 1 || last.OutputIds[0] != ids[5] || last.FinishReason != "length" {
		t.Errorf("the end of a stream repeats its last chunk: %v", last)
	}
}

func TestGRPCChoicesAndLogprobs(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	conn := dial(t, b)
	for _, stream := range []bool{false, true} {
		q := ask("many", 4, stream)
		top := int32(3)
		q.SamplingParams.N, q.SamplingParams.Logprobs = 3, &top
		chunks, ends, err := generateCall(t, t.Context(), conn, q)
		if err != nil || len(ends) != 3 {
			t.Fatal(ends, err)
		}
		for _, c := range chunks {
			if lp := c.OutputLogprobs; len(lp.GetTokenIds()) != 1 || lp.TokenIds[0] != c.TokenIds[0] ||
				len(lp.TopLogprobs[0].TokenIds) != 3 {
				t.Errorf("%v", c)
			}
		}
		seen := map[uint32]bool{}
		for _, e := range ends {
			seen[e.Index] = true
			if got := len(e.OutputLogprobs.GetTokenLogprobs()); got != len(e.OutputIds) {
				t.Errorf("%d log probabilities for %d tokens", got, len(e.OutputIds))
			}
		}
		if stream && len(chunks) != 12 || len(seen) != 3 {
			t.Errorf("%d chunks, choices %v", len(chunks), seen)
		}
	}
}

func TestGRPCStopString(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Content = modelserver.ContentEcho
	conn := dial(t, start(t, o))
	q := ask("stop", 50, false)
	q.Input = &vllmgrpc.GenerateRequest_Text{Text: "one two three END four"}
	q.SamplingParams.Stop = []string{"END"}
	_, ends, err := generateCall(t, t.Context(), conn, q)
	if err != nil || len(ends) != 1 || ends[0].FinishReason != "stop" || ends[0].GetMatchedStopStr() != "END" {
		t.Fatal(ends, err)
	}
}

// A prefill by gRPC hands its blocks to a decode by gRPC.
func TestGRPCHandoff(t *testing.T) {
	t.Parallel()
	o := batched()
	conn := dial(t, start(t, o))
	q := ask("prefill", 1, false)
	q.GetTokenized().InputIds = make([]uint32, 64)
	params := `{"do_remote_decode":true,"do_remote_prefill":false}`
	q.KvTransferParamsJson = &params
	_, ends, err := generateCall(t, t.Context(), conn, q)
	if err != nil || len(ends) != 1 || !strings.Contains(ends[0].GetKvTransferParamsJson(), `"remote_block_ids":[`) {
		t.Fatal(ends, err)
	}
}

func TestGRPCErrors(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Engine.MaxModelLen = 64
	b := start(t, o)
	conn := dial(t, b)
	fault := func(v string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), modelserver.FaultHeader, v)
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		ask  func(*vllmgrpc.GenerateRequest)
		opts []grpc.CallOption
		code codes.Code
		says string
	}{
		{"no input", t.Context(), func(q *vllmgrpc.GenerateRequest) { q.Input = nil }, nil, codes.InvalidArgument,
			"input_ids"},
		{"too long", t.Context(), func(q *vllmgrpc.GenerateRequest) { q.GetTokenized().InputIds = make([]uint32, 100) },
			nil, codes.InvalidArgument, "100 input tokens"},
		{"no tokens", t.Context(), func(q *vllmgrpc.GenerateRequest) { *q.SamplingParams.MaxTokens = 0 }, nil,
			codes.InvalidArgument, "max_tokens"},
		{"top_p", t.Context(), func(q *vllmgrpc.GenerateRequest) { q.SamplingParams.TopP = 2 }, nil,
			codes.InvalidArgument, "top_p"},
		{"bad handoff", t.Context(), func(q *vllmgrpc.GenerateRequest) { v := "[]"; q.KvTransferParamsJson = &v }, nil,
			codes.InvalidArgument, "kv_transfer_params"},
		{"compressed", t.Context(), func(*vllmgrpc.GenerateRequest) {},
			[]grpc.CallOption{grpc.UseCompressor(gzip.Name)}, codes.Unimplemented, "compressed"},
		{"a fault's status", fault("status=503"), func(*vllmgrpc.GenerateRequest) {}, nil, codes.Unavailable,
			"status 503"},
		{"a bad fault", fault("nonsense"), func(*vllmgrpc.GenerateRequest) {}, nil, codes.InvalidArgument, ""},
		{"reset", fault("reset"), func(*vllmgrpc.GenerateRequest) {}, nil, codes.Internal, ""},
		{"reset within", fault("reset-after=2"), func(q *vllmgrpc.GenerateRequest) { q.Stream = true }, nil,
			codes.Internal, ""},
	} {
		q := ask(c.name, 4, false)
		c.ask(q)
		_, _, err := generateCall(t, c.ctx, conn, q, c.opts...)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) {
			t.Errorf("%s: expected %v with %q, got %v", c.name, c.code, c.says, err)
		}
	}
	if _, _, err := generateCall(t, t.Context(), conn, ask("after", 4, false)); err != nil {
		t.Error("the server no longer serves:", err)
	}
	err := conn.Invoke(t.Context(), "/vllm.grpc.engine.VllmEngine/Nonsense", &vllmgrpc.HealthCheckRequest{},
		&vllmgrpc.HealthCheckResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	resp, err := http.Post(b.URL()+"/vllm.grpc.engine.VllmEngine/Generate", "application/json", strings.NewReader("{}"))
	if err != nil || resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
}

func TestGRPCStandardHealth(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	conn := dial(t, b)
	engineClient, health := vllmservice.NewVllmEngineClient(conn), healthpb.NewHealthClient(conn)
	check := func(want bool) {
		t.Helper()
		h, err := engineClient.HealthCheck(t.Context(), &vllmgrpc.HealthCheckRequest{})
		if err != nil || h.Healthy != want {
			t.Error(h, err)
		}
		for _, service := range []string{"", "vllm.grpc.engine.VllmEngine"} {
			h, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || (h.Status == healthpb.HealthCheckResponse_SERVING) != want {
				t.Error(h, err)
			}
		}
	}
	check(true)
	if _, err := health.Check(t.Context(),
		&healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	resp, err := b.Post(b.URL()+"/admin/crash", "", nil) // HTTP, same port
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	check(false)
}

// slow is a server with a KV cache whose requests take long.
func slow() ServerOptions {
	o := batched()
	o.Engine.Timer = latency.Constant{TimeToFirstToken: machine.Millisecond, InterTokenLatency: 5 * machine.Millisecond}
	o.Engine.BlockSize, o.Engine.NumGPUBlocks, o.Engine.MaxModelLen = 16, 256, 4096
	return o
}

// allFree waits until the engine has nothing, and uses no block then.
func (b *bench) allFree(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for {
		l, err := vllmservice.NewVllmEngineClient(conn).GetLoads(t.Context(), &vllmgrpc.GetLoadsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if l.Loads[0].NumTotalReqs == 0 {
			if l.Loads[0].NumUsedTokens != 0 {
				t.Errorf("no request, but %d tokens of the KV cache in use", l.Loads[0].NumUsedTokens)
			}
			return
		}
	}
}

func TestGRPCAbort(t *testing.T) {
	t.Parallel()
	b := start(t, slow())
	conn := dial(t, b)
	client := vllmservice.NewVllmEngineClient(conn)
	for _, streamed := range []bool{true, false} {
		id := fmt.Sprintf("endless-%v", streamed)
		stream, err := client.Generate(t.Context(), ask(id, 4000, streamed))
		if err != nil {
			t.Fatal(err)
		}
		if streamed {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		} else {
			b.running(t, conn)
		}
		if _, err := client.Abort(t.Context(),
			&vllmgrpc.AbortRequest{RequestIds: []string{"unknown", id}}); err != nil {
			t.Fatal(err)
		}
		_, ends, err := receive(t, stream)
		if err != nil || len(ends) != 1 || ends[0].FinishReason != "abort" {
			t.Fatal(ends, err)
		}
		b.allFree(t, conn)
	}
}

// running waits for a request in the engine.
func (b *bench) running(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for {
		l, err := vllmservice.NewVllmEngineClient(conn).GetLoads(t.Context(), &vllmgrpc.GetLoadsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if l.Loads[0].NumRunningReqs > 0 {
			return
		}
	}
}

func TestGRPCClientLeaves(t *testing.T) {
	t.Parallel()
	b := start(t, slow())
	conn := dial(t, b)
	ctx, leave := context.WithCancel(t.Context())
	stream, err := vllmservice.NewVllmEngineClient(conn).Generate(ctx, ask("left", 4000, true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	leave()
	b.allFree(t, conn)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := generateCall(t, ctx, conn, ask("late", 4000, true)); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	b.allFree(t, conn)
}

func TestGRPCEmbedAndInfo(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	client := vllmservice.NewVllmEngineClient(dial(t, b))
	e, err := client.Embed(t.Context(),
		&vllmgrpc.EmbedRequest{Tokenized: &vllmgrpc.TokenizedInput{InputIds: []uint32{7, 8, 9}}})
	if err != nil || int(e.EmbeddingDim) != modelserver.DefaultDimensions ||
		len(e.Embedding) != modelserver.DefaultDimensions || e.PromptTokens != 3 {
		t.Fatal(e, err)
	}
	if _, err := client.Embed(t.Context(), &vllmgrpc.EmbedRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	m, err := client.GetModelInfo(t.Context(), &vllmgrpc.GetModelInfoRequest{})
	if err != nil || m.ServedModelName != "m" || !m.IsGeneration || m.MaxContextLength == 0 {
		t.Error(m, err)
	}
	s, err := client.GetServerInfo(t.Context(), &vllmgrpc.GetServerInfoRequest{})
	if err != nil || s.ServerType != "vllm-grpc" || s.IsPaused {
		t.Error(s, err)
	}
}

// The endpoint picker reads the same values in a body as the server.
func TestGRPCAsThePickerReadsIt(t *testing.T) {
	t.Parallel()
	got, err := parse.VLLMGRPC{}.Parse("/vllm.grpc.engine.VllmEngine/Generate",
		vllmgrpc.AppendMessage(nil, ask("x", 17, true)))
	if err != nil || !got.Stream || got.MaxOutputTokens != 17 ||
		!cmp.Equal(got.Prompts[0].Tokens(), []uint32{1, 2, 3, 4, 5}) {
		t.Fatalf("%+v %v", got, err)
	}
	usage, ok := parse.VLLMGRPC{}.Usage(
		vllmgrpc.AppendMessage(nil, &vllmgrpc.GenerateResponse{Response: &vllmgrpc.GenerateResponse_Complete{
			Complete: &vllmgrpc.GenerateComplete{OutputIds: []uint32{1, 2}, PromptTokens: 5, CompletionTokens: 2,
				CachedTokens: 4}}}), false)
	if !ok || usage.PromptTokens != 5 || usage.CompletionTokens != 2 || usage.CachedTokens != 4 {
		t.Errorf("%+v", usage)
	}
}

// The constraints of a message act as those of a body do.
func TestGRPCConstraints(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	conn := dial(t, b)
	for i, p := range []*vllmgrpc.SamplingParams{
		{Constraint: &vllmgrpc.SamplingParams_JsonSchema{JsonSchema: `{"const": "yes"}`}},
		{Constraint: &vllmgrpc.SamplingParams_Regex{Regex: `"yes"`}},
		{Constraint: &vllmgrpc.SamplingParams_Grammar{Grammar: `root ::= "\"yes\""`}},
		{Constraint: &vllmgrpc.SamplingParams_Choice{Choice: &vllmgrpc.ChoiceConstraint{Choices: []string{`"yes"`}}}},
	} {
		q := ask(fmt.Sprint("form", i), 9, false)
		p.MaxTokens = q.SamplingParams.MaxTokens
		q.SamplingParams = p
		_, ends, err := generateCall(t, t.Context(), conn, q)
		if err != nil || len(ends) != 1 || tokens.Decode(tokens.Packed{}, ends[0].OutputIds) != `"yes"` ||
			ends[0].FinishReason != "stop" {
			t.Errorf("%v: %v %v", p, ends, err)
		}
	}
	q := ask("refused", 9, false)
	q.SamplingParams.Constraint = &vllmgrpc.SamplingParams_JsonObject{}
	if _, _, err := generateCall(t, t.Context(), conn, q); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
