package modelserver

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// errAborted is why the context of a call ends that the client has aborted by
// name.
var errAborted = errors.New("the client aborted the request")

// grpcRoutes serves vLLM's gRPC engine service and the standard health service
// on the port of the HTTP API.
func (s *Server) grpcRoutes(mux *http.ServeMux) {
	calls := &grpcCalls{named: map[string][]*grpcCall{}}
	engineMethod := func(name string, serve func(*grpcCall)) {
		mux.HandleFunc("POST /"+vllmgrpc.VllmEngine_ServiceDesc.ServiceName+"/"+name, s.grpcCall(calls, serve))
	}
	engineMethod("Generate", func(c *grpcCall) { c.generate(c.readGenerate) })
	engineMethod("Embed", func(c *grpcCall) { c.generate(c.readEmbed) })
	engineMethod("Abort", func(c *grpcCall) {
		unary(c, func(q *vllmgrpc.AbortRequest) proto.Message {
			for _, id := range q.RequestIds {
				c.calls.abort(id)
			}
			return &vllmgrpc.AbortResponse{}
		})
	})
	engineMethod("HealthCheck", func(c *grpcCall) {
		unary(c, func(*vllmgrpc.HealthCheckRequest) proto.Message {
			if !s.healthy() {
				return &vllmgrpc.HealthCheckResponse{Message: "Engine is not alive"}
			}
			return &vllmgrpc.HealthCheckResponse{Healthy: true, Message: "Health"}
		})
	})
	engineMethod("GetModelInfo", func(c *grpcCall) {
		unary(c, func(*vllmgrpc.GetModelInfoRequest) proto.Message { return s.modelInfo() })
	})
	engineMethod("GetServerInfo", func(c *grpcCall) {
		unary(c, func(*vllmgrpc.GetServerInfoRequest) proto.Message { return s.serverInfo() })
	})
	engineMethod("GetLoads", func(c *grpcCall) {
		unary(c, func(*vllmgrpc.GetLoadsRequest) proto.Message { return s.loads() })
	})
	engineMethod("GetTokenizer", (*grpcCall).tokenizerFiles)
	engineMethod("SubscribeKvEvents", (*grpcCall).subscribe)
	health := func(c *grpcCall) {
		unary(c, func(q *healthpb.HealthCheckRequest) proto.Message {
			if q.Service != "" && q.Service != vllmgrpc.VllmEngine_ServiceDesc.ServiceName {
				c.fail(codes.NotFound, "Unknown service: "+q.Service)
				return nil
			}
			if !s.healthy() {
				return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
			}
			return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
		})
	}
	// As vLLM's, Watch tells the state once.
	mux.HandleFunc("POST "+healthService+"Check", s.grpcCall(calls, health))
	mux.HandleFunc("POST "+healthService+"Watch", s.grpcCall(calls, health))
	mux.HandleFunc("POST /"+vllmgrpc.VllmEngine_ServiceDesc.ServiceName+"/", s.grpcCall(calls, func(c *grpcCall) {
		c.fail(codes.Unimplemented, "this server does not know the method "+c.r.URL.Path)
	}))
}

func (s *Server) healthy() bool { return !s.engine.Dead() && s.startingFor() <= 0 }

// grpcCalls are the calls in flight by their request ids, for Abort. Ids are
// the clients' and may be used twice.
type grpcCalls struct {
	mu    sync.Mutex
	named map[string][]*grpcCall
}

func (cs *grpcCalls) add(id string, c *grpcCall) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.name = id
	cs.named[id] = append(cs.named[id], c)
}

func (cs *grpcCalls) remove(c *grpcCall) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	list := cs.named[c.name]
	for i := range list {
		if list[i] == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(cs.named, c.name)
		return
	}
	cs.named[c.name] = list
}

func (cs *grpcCalls) abort(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.named[id] {
		c.cancel(errAborted)
	}
}

// grpcCall is one call. To the rest of the server it is the ResponseWriter of
// an ordinary request; what would be an error's status and body there becomes
// a gRPC status.
type grpcCall struct {
	http.ResponseWriter
	s      *Server
	r      *http.Request
	calls  *grpcCalls
	cancel context.CancelCauseFunc
	name   string // the request's id, while the call can be aborted
	reply  *grpcGenerate

	began   bool // the response's headers have left
	failed  bool
	code    codes.Code
	message string
}

// Unwrap leads http.ResponseController to the connection.
func (c *grpcCall) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins the response, or notes a status to end it with.
func (c *grpcCall) WriteHeader(code int) {
	if code != http.StatusOK {
		if !c.failed {
			c.fail(vllmgrpc.CodeOf(code), http.StatusText(code))
		}
		return
	}
	c.begin()
}

func (c *grpcCall) begin() {
	if c.began {
		return
	}
	c.began = true
	h := c.Header()
	h["Content-Type"] = []string{vllmgrpc.ContentType}
	delete(h, "Content-Length")
	c.ResponseWriter.WriteHeader(http.StatusOK)
}

// Write sends messages; the JSON of an error is swallowed.
func (c *grpcCall) Write(b []byte) (int, error) {
	if c.failed {
		return len(b), nil
	}
	c.begin()
	return c.ResponseWriter.Write(b)
}

// Flush sends what was written.
func (c *grpcCall) Flush() {
	if c.began {
		c.ResponseWriter.(http.Flusher).Flush()
	}
}

func (c *grpcCall) fail(code codes.Code, message string) {
	c.failed, c.code, c.message = true, code, message
}

// failError notes an error in the place where an HTTP client would get JSON.
func (c *grpcCall) failError(b []byte, e *openai.Error) []byte {
	if !c.failed {
		c.fail(vllmgrpc.CodeOf(e.Status), e.Message)
	}
	return b
}

// end sends the status, in the trailers or, where nothing has left yet, in the
// headers alone.
func (c *grpcCall) end() {
	h := c.Header()
	prefix := http.TrailerPrefix
	if !c.began {
		prefix = ""
		h["Content-Type"] = []string{vllmgrpc.ContentType}
		delete(h, "Content-Length")
	}
	h[prefix+"Grpc-Status"] = []string{strconv.Itoa(int(c.code))}
	if c.message != "" {
		h[prefix+"Grpc-Message"] = []string{vllmgrpc.EscapeMessage(c.message)}
	}
	if !c.began {
		c.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// grpcCall serves one method.
func (s *Server) grpcCall(calls *grpcCalls, serve func(*grpcCall)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 || !vllmgrpc.IsGRPC(r.Header.Get("Content-Type")) {
			wire.CloseAfter(w, r)
			wire.Answer(w, openai.Errorf(http.StatusUnsupportedMediaType, "", "This path speaks gRPC: HTTP/2 with the content type %s.", vllmgrpc.ContentType))
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		c := &grpcCall{ResponseWriter: w, s: s, calls: calls, cancel: cancel}
		if v := r.Header.Get("Grpc-Timeout"); v != "" {
			limit, err := vllmgrpc.ParseTimeout(v)
			if err != nil {
				c.fail(codes.Internal, err.Error())
				c.end()
				return
			}
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, limit)
			defer stop()
		}
		c.r = r.WithContext(ctx)
		serve(c)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && !c.failed {
			c.fail(codes.DeadlineExceeded, "the call's deadline has passed")
		}
		c.end()
	}
}

// unary answers a call with one message of the same kind as its request's; nil
// where it has failed.
func unary[M any, P interface {
	*M
	proto.Message
}](c *grpcCall, serve func(P) proto.Message) {
	body, bad, ok := wire.ReadWhole(c.r, nil, c.s.opts.MaxBodyBytes)
	switch {
	case bad != nil:
		c.fail(vllmgrpc.CodeOf(bad.Status), bad.Message)
		return
	case !ok:
		panic(http.ErrAbortHandler) // the client left
	}
	q := P(new(M))
	if err := vllmgrpc.ReadMessage(body, q); err != nil {
		c.fail(status.Code(err), status.Convert(err).Message())
		return
	}
	if m := serve(q); m != nil && !c.failed {
		_, _ = c.Write(vllmgrpc.AppendMessage(nil, m)) // the client may be gone; there is nobody to tell
	}
}

// generate serves a call that takes the way of every inference request.
func (c *grpcCall) generate(read func(*modelserver.Reader, *modelserver.Head, []byte) (*modelserver.Request, *openai.Error)) {
	c.s.inFlight.add(1)
	defer c.s.inFlight.add(-1)
	defer func() {
		if c.name != "" {
			c.calls.remove(c)
		}
	}()
	c.s.serveGeneration(c, c.r, &modelserver.API{Read: read, AppendError: c.failError})
	if errors.Is(context.Cause(c.r.Context()), errAborted) && c.reply != nil && !c.failed {
		_, _ = c.Write(c.reply.aborted(nil)) // as above
	}
}

func (s *Server) modelInfo() *vllmgrpc.GetModelInfoResponse {
	info := &vllmgrpc.GetModelInfoResponse{
		ModelPath: s.opts.Models[0], ServedModelName: s.opts.Models[0], TokenizerPath: s.opts.Models[0],
		IsGeneration: true, MaxContextLength: uint32(s.cfg.MaxModelLen), MaxReqInputLen: int32(s.cfg.MaxModelLen), SupportsVision: true,
	}
	if t, ok := s.reader.Tokenizer.(interface{ VocabularySize() int }); ok {
		info.VocabSize = uint32(t.VocabularySize())
	}
	return info
}

func (s *Server) serverInfo() *vllmgrpc.GetServerInfoResponse {
	return &vllmgrpc.GetServerInfoResponse{
		ActiveRequests: uint32(s.inFlight.value()), IsPaused: s.engine.SleepLevel() > 0, ServerType: "vllm-grpc",
		UptimeSeconds: time.Since(s.started).Seconds(), KvEngineId: s.reader.EngineID, KvRole: s.opts.KVRole, DataParallelSize: 1,
	}
}

func (s *Server) loads() *vllmgrpc.GetLoadsResponse {
	x, ok := s.look()
	if !ok {
		x.Stats = &stats.Stats{} // the server is stopping
	}
	st, used := x.Engine, x.KVBlocks
	load := &vllmgrpc.SchedulerLoad{
		NumRunningReqs: int32(st.Running), NumWaitingReqs: int32(st.Waiting), NumTotalReqs: int32(st.Running + st.Waiting),
		MaxRunningRequests: int32(s.cfg.MaxNumSeqs), NumUsedTokens: int32(used * s.cfg.BlockSize), MaxTotalNumTokens: int32(s.cfg.NumGPUBlocks * s.cfg.BlockSize),
	}
	load.GenThroughput, load.Utilization = x.Recent()
	load.CacheHitRate = x.HitRate()
	if s.cfg.NumGPUBlocks > 0 {
		load.TokenUsage = float64(used) / float64(s.cfg.NumGPUBlocks)
	}
	return &vllmgrpc.GetLoadsResponse{
		Timestamp: time.Now().UTC().Format(time.RFC3339Nano), Version: s.opts.Version, DpRankCount: 1, Loads: []*vllmgrpc.SchedulerLoad{load},
	}
}
