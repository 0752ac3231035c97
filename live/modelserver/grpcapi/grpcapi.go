// Package grpcapi serves vLLM's gRPC engine service and the standard health service
// on the port of a model server's HTTP API.
package grpcapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// errAborted is the cause that ends a call's context after the client has aborted the call by its id.
var errAborted = errors.New("the client aborted the request")

// Server is the model server behind the service.
type Server struct {
	Reader *modelserver.Reader
	Engine *enginedrive.Engine
	// Infer serves a request for tokens. InFlight returns how many there are.
	Infer    func(http.ResponseWriter, *http.Request, *modelserver.API)
	InFlight func() int
	Healthy  func() bool
	Look     func() (stats.Look, bool)
	// Feed holds the KV events; nil if the server publishes none.
	Feed *Feed
	// Leaving is closed when the server begins to stop.
	Leaving       <-chan struct{}
	Started       time.Time
	Version       string
	TokenizerJSON []byte // see ServerOptions
	MaxBodyBytes  int64

	calls calls
}

// HealthService is the prefix of the paths of gRPC's health service.
const HealthService = "/grpc.health.v1.Health/"

// Refuse answers a call that is not allowed.
func Refuse(w http.ResponseWriter, r *http.Request, code codes.Code, message string) {
	c := call{ResponseWriter: w, r: r}
	c.fail(code, message)
	c.end()
}

// Routes registers the service's methods.
func (s *Server) Routes(mux *http.ServeMux) {
	s.calls.named = map[string][]*call{}
	engineMethod := func(name string, serve func(*call)) {
		mux.HandleFunc("POST /"+vllmgrpc.Service+"/"+name, s.method(serve))
	}
	engineMethod("Generate", func(c *call) { c.generate(modelserver.GRPCGenerate) })
	engineMethod("Embed", func(c *call) { c.generate(modelserver.GRPCEmbed) })
	engineMethod("Abort", func(c *call) {
		unary(c, func(q *vllmgrpc.AbortRequest) proto.Message {
			for _, id := range q.RequestIds {
				c.s.calls.abort(id)
			}
			return &vllmgrpc.AbortResponse{}
		})
	})
	engineMethod("HealthCheck", func(c *call) {
		unary(c, func(*vllmgrpc.HealthCheckRequest) proto.Message {
			if !s.Healthy() {
				return &vllmgrpc.HealthCheckResponse{Message: "Engine is not alive"}
			}
			return &vllmgrpc.HealthCheckResponse{Healthy: true, Message: "Health"}
		})
	})
	engineMethod("GetModelInfo", func(c *call) {
		unary(c, func(*vllmgrpc.GetModelInfoRequest) proto.Message { return s.modelInfo() })
	})
	engineMethod("GetServerInfo", func(c *call) {
		unary(c, func(*vllmgrpc.GetServerInfoRequest) proto.Message { return s.serverInfo() })
	})
	engineMethod("GetLoads", func(c *call) {
		unary(c, func(*vllmgrpc.GetLoadsRequest) proto.Message { return s.loads() })
	})
	engineMethod("GetTokenizer", (*call).tokenizerFiles)
	engineMethod("SubscribeKvEvents", (*call).subscribe)
	health := func(c *call) {
		unary(c, func(q *healthpb.HealthCheckRequest) proto.Message {
			if q.Service != "" && q.Service != vllmgrpc.Service {
				c.fail(codes.NotFound, "Unknown service: "+q.Service)
				return nil
			}
			if !s.Healthy() {
				return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
			}
			return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
		})
	}
	// Like vLLM's, Watch sends the state once.
	mux.HandleFunc("POST "+HealthService+"Check", s.method(health))
	mux.HandleFunc("POST "+HealthService+"Watch", s.method(health))
	mux.HandleFunc("POST /"+vllmgrpc.Service+"/", s.method(func(c *call) {
		c.fail(codes.Unimplemented, "this server does not know the method "+c.r.URL.Path)
	}))
}

// calls holds the calls in flight by their request ids, for Abort. Clients choose the ids, so two calls may share one.
type calls struct {
	mu    sync.Mutex
	named map[string][]*call
}

func (cs *calls) add(id string, c *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.name = id
	cs.named[id] = append(cs.named[id], c)
}

func (cs *calls) remove(c *call) {
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

func (cs *calls) abort(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.named[id] {
		c.cancel(errAborted)
	}
}

// call is one call. To the rest of the server, it is the ResponseWriter of an ordinary request. It converts an error's
// status and body to a gRPC status.
type call struct {
	http.ResponseWriter
	s      *Server
	r      *http.Request
	cancel context.CancelCauseFunc
	name   string              // the request's id, while Abort can find the call
	reply  modelserver.Encoder // of an inference request's answer

	began   bool // the response's headers have left
	failed  bool
	code    codes.Code
	message string
}

// Unwrap leads http.ResponseController to the connection.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins the response, or keeps an error's status for the end.
func (c *call) WriteHeader(code int) {
	if code != http.StatusOK {
		if !c.failed {
			c.fail(codes.Code(vllmgrpc.CodeOf(code)), vllmgrpc.HTTPMessage(code))
		}
		return
	}
	c.writeHead()
}

func (c *call) writeHead() {
	if c.began {
		return
	}
	c.began = true
	h := c.Header()
	h["Content-Type"] = []string{vllmgrpc.ContentType}
	delete(h, "Content-Length")
	c.ResponseWriter.WriteHeader(http.StatusOK)
}

// Write sends messages. It drops the JSON of an error.
func (c *call) Write(b []byte) (int, error) {
	if c.failed {
		return len(b), nil
	}
	c.writeHead()
	return c.ResponseWriter.Write(b)
}

// Flush sends the messages written so far.
func (c *call) Flush() {
	if c.began {
		c.ResponseWriter.(http.Flusher).Flush()
	}
}

func (c *call) fail(code codes.Code, message string) {
	c.failed, c.code, c.message = true, code, message
}

// failError keeps an error for the call's status. An HTTP client would get it as JSON.
func (c *call) failError(b []byte, e *openai.Error) []byte {
	if !c.failed {
		c.fail(codes.Code(vllmgrpc.CodeOf(e.Status)), e.Message)
	}
	return b
}

// end sends the status in the trailers or, if nothing has been sent yet, in the headers alone.
func (c *call) end() {
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

// method returns the handler of one method.
func (s *Server) method(serve func(*call)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 || !vllmgrpc.IsGRPC(r.Header.Get("Content-Type")) {
			wire.CloseAfter(w, r)
			wire.Answer(w, openai.Errorf(http.StatusUnsupportedMediaType, "",
				"This path speaks gRPC: HTTP/2 with the content type %s.", vllmgrpc.ContentType))
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		c := &call{ResponseWriter: w, s: s, cancel: cancel}
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

// unary answers a call that has one request message and one response message. A nil response means that the call has
// failed.
func unary[M any, P interface {
	*M
	proto.Message
}](c *call, serve func(P) proto.Message) {
	q := P(new(M))
	if !c.readOne(q) {
		return
	}
	if m := serve(q); m != nil && !c.failed {
		_, _ = c.Write(vllmgrpc.AppendMessage(nil, m)) // the client may have left; no error could be reported to it
	}
}

// generate serves a call in the same way as every inference request. Abort can end the call by the request's id.
func (c *call) generate(api *modelserver.API) {
	defer func() {
		if c.name != "" {
			c.s.calls.remove(c)
		}
	}()
	read := func(rd *modelserver.Reader, head *modelserver.Head, body []byte) (*modelserver.Request, *openai.Error) {
		req, bad := api.Read(rd, head, body)
		if bad == nil {
			c.s.calls.add(req.Key, c)
			c.reply = req.Encoder
			req.Encoder = failing{req.Encoder, c}
		}
		return req, bad
	}
	c.s.Infer(c, c.r, &modelserver.API{Path: api.Path, Read: read, AppendError: c.failError})
	if reply, ok := c.reply.(modelserver.Aborter); ok && errors.Is(context.Cause(c.r.Context()), errAborted) &&
		!c.failed {
		_, _ = c.Write(reply.Aborted(nil, c.began)) // as above
	}
}

// failing reports errors inside a response in the call's status.
type failing struct {
	modelserver.Encoder
	c *call
}

func (f failing) Fail(b []byte, e *openai.Error) []byte { return f.c.failError(b, e) }

func (s *Server) modelInfo() *vllmgrpc.GetModelInfoResponse {
	info := &vllmgrpc.GetModelInfoResponse{
		ModelPath: s.Reader.Models[0], ServedModelName: s.Reader.Models[0], TokenizerPath: s.Reader.Models[0],
		IsGeneration: true, MaxContextLength: uint32(s.Reader.Engine.MaxModelLen),
		MaxReqInputLen: int32(s.Reader.Engine.MaxModelLen), SupportsVision: true,
	}
	if t, ok := s.Reader.Tokenizer.(interface{ VocabularySize() int }); ok {
		info.VocabSize = uint32(t.VocabularySize())
	}
	return info
}

func (s *Server) serverInfo() *vllmgrpc.GetServerInfoResponse {
	return &vllmgrpc.GetServerInfoResponse{
		ActiveRequests: uint32(s.InFlight()), IsPaused: s.Engine.SleepLevel() > 0, ServerType: "vllm-grpc",
		UptimeSeconds: time.Since(s.Started).Seconds(), KvEngineId: s.Reader.EngineID, KvRole: s.Reader.KVRole,
		DataParallelSize: 1,
	}
}

func (s *Server) loads() *vllmgrpc.GetLoadsResponse {
	x, ok := s.Look()
	if !ok {
		x.Stats = &stats.Stats{} // the server is stopping
	}
	st, used := x.Engine, x.KVBlocks
	load := &vllmgrpc.SchedulerLoad{
		NumRunningReqs: int32(st.Running), NumWaitingReqs: int32(st.Waiting),
		NumTotalReqs:       int32(st.Running + st.Waiting),
		MaxRunningRequests: int32(s.Reader.Engine.MaxNumSeqs), NumUsedTokens: int32(used * s.Reader.Engine.BlockSize),
		MaxTotalNumTokens: int32(s.Reader.Engine.NumGPUBlocks * s.Reader.Engine.BlockSize),
	}
	load.GenThroughput, load.Utilization = x.Recent()
	load.CacheHitRate = x.HitRate()
	if s.Reader.Engine.NumGPUBlocks > 0 {
		load.TokenUsage = float64(used) / float64(s.Reader.Engine.NumGPUBlocks)
	}
	return &vllmgrpc.GetLoadsResponse{
		Timestamp: time.Now().UTC().Format(time.RFC3339Nano), Version: s.Version, DpRankCount: 1,
		Loads: []*vllmgrpc.SchedulerLoad{load},
	}
}
