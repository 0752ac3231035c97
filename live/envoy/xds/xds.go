// Package xds is the control plane that a running Envoy asks for its
// configuration, over delta ADS. A Server holds listeners, routes, clusters and
// endpoints; Set replaces them so that no request is lost on the way, and tells
// when Envoy refuses one: then it keeps what it had, and so does the Server.
package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Resources are resources of one type by name.
type Resources map[string]proto.Message

// State is all that Envoy is told.
type State struct{ Listeners, Routes, Clusters, Endpoints Resources }

// kinds are the types in the order in which they are given: what is referred to
// before what refers to it.
var kinds = []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

func (s *State) of(kind string) Resources {
	switch kind {
	case resource.ClusterType:
		return s.Clusters
	case resource.EndpointType:
		return s.Endpoints
	case resource.ListenerType:
		return s.Listeners
	}
	return s.Routes
}

// RejectedError says which resources Envoy refused, and why.
type RejectedError struct {
	Names  []string
	Reason string
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("Envoy refused %s: %s", strings.Join(e.Names, ", "), e.Reason)
}

// taken bounds how long Envoy may think about a change.
const taken = 15 * time.Second

// Server is the control plane of one Envoy.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	listener net.Listener
	grpc     *grpc.Server
	delta    delta.Server
	stop     context.CancelFunc
	done     chan struct{}
	caches   map[string]*cache.LinearCache

	setting sync.Mutex // one change at a time
	state   State

	mu      sync.Mutex
	changed chan struct{} // closed and made anew whenever what follows changes
	stream  int64         // the open stream, 0 for none
	clock   int
	sent    map[string]sent // by nonce
	seen    map[string]answer
}

// sent are the resources of one response.
type sent struct {
	keys []string
	at   int
}

// answer is what Envoy said last about a resource, of the response made at a time.
type answer struct {
	at       int
	rejected string
}

// Start serves on a free port of loopback.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: l, grpc: grpc.NewServer(), stop: stop, done: make(chan struct{}), caches: map[string]*cache.LinearCache{}, changed: make(chan struct{})}
	s.forget()
	byType := &cache.MuxCache{Caches: map[string]cache.Cache{}, ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() }}
	for _, kind := range kinds {
		s.caches[kind] = cache.NewLinearCache(kind, cache.WithLogger(log.LoggerFuncs{}))
		byType.Caches[kind] = s.caches[kind]
	}
	s.delta = delta.NewServer(ctx, byType, s)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) // ends with Stop
	}()
	return s, nil
}

// Addr is where Envoy asks, ip:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stop ends the serving; what Envoy has stays in force there.
func (s *Server) Stop() {
	s.stop()
	s.grpc.Stop()
	<-s.done
}

// DeltaAggregatedResources serves Envoy's stream.
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// Set makes a state the one in force: first what is new or changed, clusters with
// their endpoints before the routes that lead there, and at last what is gone.
// Where Envoy refuses a part of it, the old state is given again, and the error is
// a RejectedError. Without an Envoy it is what the next one gets.
func (s *Server) Set(ctx context.Context, to State) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	old := s.state
	ctx, cancel := context.WithTimeout(ctx, taken)
	defer cancel()
	err := s.move(ctx, old, to)
	var rejected *RejectedError
	if errors.As(err, &rejected) {
		if back := s.move(ctx, to, old); back != nil {
			err = errors.Join(err, fmt.Errorf("and then the old configuration: %w", back))
		}
		return err
	}
	s.state = to
	return err
}

func (s *Server) move(ctx context.Context, from, to State) error {
	for _, step := range [][]string{kinds[:2], kinds[2:]} {
		s.mu.Lock()
		since := s.clock
		s.mu.Unlock()
		var keys []string
		for _, kind := range step {
			update := map[string]types.Resource{}
			for name, r := range to.of(kind) {
				if was := from.of(kind)[name]; was == nil || !proto.Equal(was, r) {
					update[name] = r
					keys = append(keys, kind+" "+name)
				}
			}
			var gone []string
			if kind == resource.ListenerType || kind == resource.RouteType {
				gone = missing(from.of(kind), to.of(kind))
			}
			if len(update)+len(gone) == 0 {
				continue
			}
			if err := s.caches[kind].UpdateResources(update, gone); err != nil {
				return err
			}
		}
		if err := s.await(ctx, keys, since); err != nil {
			return err
		}
	}
	for _, kind := range kinds[:2] {
		if gone := missing(from.of(kind), to.of(kind)); len(gone) > 0 {
			if err := s.caches[kind].UpdateResources(nil, gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing are the names that are gone.
func missing(from, to Resources) (gone []string) {
	for name := range from {
		if to[name] == nil {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// await waits until Envoy has taken, or refused, each of the resources as they
// were sent after a time.
func (s *Server) await(ctx context.Context, keys []string, since int) error {
	for {
		s.mu.Lock()
		open, changed := s.stream != 0, s.changed
		var rejected RejectedError
		waiting := 0
		for _, key := range keys {
			switch a := s.seen[key]; {
			case a.at <= since:
				waiting++
			case a.rejected != "":
				_, name, _ := strings.Cut(key, " ")
				rejected.Names = append(rejected.Names, name)
				rejected.Reason = a.rejected
			}
		}
		s.mu.Unlock()
		switch {
		case len(rejected.Names) > 0:
			slices.Sort(rejected.Names)
			return &rejected
		case waiting == 0 || !open:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("Envoy has not taken %d of the configuration's %d changes: %w", waiting, len(keys), ctx.Err())
		}
	}
}

// forget begins anew with an Envoy that knows nothing.
func (s *Server) forget() {
	s.sent, s.seen = map[string]sent{}, map[string]answer{}
}

func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// OnDeltaStreamOpen is told by the stream's handler.
func (s *Server) OnDeltaStreamOpen(_ context.Context, id int64, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = id
	s.forget()
	s.tell()
	return nil
}

// OnDeltaStreamClosed is told by the stream's handler.
func (s *Server) OnDeltaStreamClosed(id int64, _ *corev3.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == id {
		s.stream = 0
		s.tell()
	}
}

// OnStreamDeltaResponse keeps what was sent, until Envoy has said what it makes
// of it.
func (s *Server) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	x := sent{at: s.clock}
	for _, one := range r.GetResources() {
		x.keys = append(x.keys, r.GetTypeUrl()+" "+one.GetName())
	}
	s.sent[r.GetTypeUrl()+" "+r.GetNonce()] = x
}

// maxReason bounds what is told of a refusal: Envoy repeats the whole resource.
const maxReason = 512

// OnStreamDeltaRequest hears whether Envoy took what was sent.
func (s *Server) OnStreamDeltaRequest(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	nonce := r.GetTypeUrl() + " " + r.GetResponseNonce()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.sent[nonce]
	if !ok {
		return nil
	}
	delete(s.sent, nonce)
	why := r.GetErrorDetail().GetMessage()
	if len(why) > maxReason {
		why = strings.ToValidUTF8(why[:maxReason], "") + "…"
	}
	if r.GetErrorDetail() != nil && why == "" {
		why = "it does not say why"
	}
	// Of several resources in one refusal Envoy names those that it means.
	means := func(key string) bool { _, name, _ := strings.Cut(key, " "); return strings.Contains(why, name) }
	named := slices.ContainsFunc(x.keys, means)
	for _, key := range x.keys {
		a := answer{at: x.at}
		if !named || means(key) {
			a.rejected = why
		}
		s.seen[key] = a
	}
	s.tell()
	return nil
}

// Of are resources of one type in the form of a State.
func Of[T proto.Message](m map[string]T) Resources {
	out := Resources{}
	for name, r := range m {
		out[name] = r
	}
	return out
}
