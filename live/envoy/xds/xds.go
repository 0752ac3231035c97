// Package xds is the control plane from which a running Envoy gets its configuration, over delta ADS. A Server holds
// listeners, routes, clusters and endpoints. Set replaces them without losing requests. If Envoy refuses a resource,
// Set returns an error, and both Envoy and the Server keep the old state.
package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// State is the complete configuration for Envoy: its resources by their types' URLs and by their names.
type State map[string]map[string]types.Resource

// Add adds a resource.
func (s State) Add(name string, r types.Resource) {
	kind := resource.APITypePrefix + string(proto.MessageName(r))
	if s[kind] == nil {
		s[kind] = map[string]types.Resource{}
	}
	s[kind][name] = r
}

// kinds are the resource types in the order of delivery: a resource comes before those that refer to it.
var kinds = []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

// RejectedError names the resources that Envoy refused, and the reason.
type RejectedError struct {
	Names  []string
	Reason string
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("Envoy refused %s: %s", strings.Join(e.Names, ", "), e.Reason)
}

// Server is the control plane of one Envoy.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	listener net.Listener
	grpc     *grpc.Server
	delta    delta.Server
	stop     context.CancelFunc
	done     chan struct{}
	caches   map[string]*cache.LinearCache

	setting sync.Mutex    // one change at a time
	most    time.Duration // that Envoy may take for a change

	mu      sync.Mutex
	changed chan struct{}                // closed and replaced at each change of the fields below
	stream  int64                        // the open stream, 0 for none
	sent    map[string]map[string]string // versions of resources, by the nonce of their response
	seen    map[string]answer
}

// answer is Envoy's latest answer about a resource: the version, and the reason if Envoy refused it.
type answer struct{ version, rejected string }

// Start serves on a free port of loopback.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: l, grpc: grpc.NewServer(), stop: stop, done: make(chan struct{}),
		caches: map[string]*cache.LinearCache{}, changed: make(chan struct{}), most: 15 * time.Second}
	s.forget()
	byType := &cache.MuxCache{Caches: map[string]cache.Cache{},
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() }}
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

// Addr returns the address for Envoy to connect to, ip:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stop ends the server. Envoy keeps its configuration.
func (s *Server) Stop() {
	s.stop()
	s.grpc.Stop()
	<-s.done
}

// DeltaAggregatedResources serves Envoy's stream.
func (s *Server) DeltaAggregatedResources(
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resource.AnyType)
}

// Set puts a state in force. It sends new and changed resources first, clusters with their endpoints before the routes
// that lead there, and removes old resources last. If Envoy refuses a part of the state (a RejectedError) or does not
// take it in time, or if ctx ends, Set restores the old state. Without a connected Envoy, the next one that connects
// gets the state.
func (s *Server) Set(ctx context.Context, to State) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	old := State{}
	for _, kind := range kinds {
		old[kind] = s.caches[kind].GetResources()
	}
	err := s.move(ctx, to, true)
	if err == nil {
		return nil
	}
	var rejected *RejectedError
	if back := s.back(ctx, old, errors.As(err, &rejected)); back != nil {
		return errors.Join(err, fmt.Errorf("and then the last good configuration: %w", back))
	}
	return err
}

// Back restores an earlier state. The error is the reason why Envoy may not have taken it yet. No other state is
// pending then.
func (s *Server) Back(ctx context.Context, to State) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	return s.back(ctx, to, true)
}

func (s *Server) back(ctx context.Context, to State, wait bool) error {
	err := s.move(ctx, to, wait)
	if err != nil {
		err = errors.Join(err, s.move(ctx, to, false))
	}
	return err
}

// move changes the resources to another state, in steps. With wait, it starts each step when Envoy has taken the
// previous one.
func (s *Server) move(ctx context.Context, to State, wait bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.most)
	defer cancel()
	for _, step := range [][]string{kinds[:2], kinds[2:]} {
		wanted, replaced := map[string]string{}, map[string]bool{}
		for _, kind := range step {
			held, update := s.caches[kind].GetResources(), map[string]types.Resource{}
			for name, r := range to[kind] {
				was := held[name]
				switch {
				case was == nil || !proto.Equal(was, r):
					replaced[name] = was != nil && kind == resource.ClusterType
				case replaced[name] && kind == resource.EndpointType:
					r = resent(r)
				default:
					continue
				}
				text, err := cache.MarshalResource(r)
				if err != nil {
					return err
				}
				update[name], wanted[kind+" "+name] = r, cache.HashResource(text)
			}
			var gone []string
			if kind == resource.ListenerType || kind == resource.RouteType {
				gone = missing(held, to[kind])
			}
			if err := s.put(kind, update, gone); err != nil {
				return err
			}
		}
		if !wait {
			continue
		}
		if err := s.await(ctx, wanted); err != nil {
			return err
		}
	}
	for _, kind := range kinds[:2] {
		if err := s.put(kind, nil, missing(s.caches[kind].GetResources(), to[kind])); err != nil {
			return err
		}
	}
	return nil
}

// resent returns endpoints that mean the same and differ, so that they are sent again: Envoy puts a changed cluster in
// force only once it gets endpoints for it, and asks for none that it has.
func resent(r types.Resource) types.Resource {
	x := proto.CloneOf(r)
	if x, ok := x.(*endpointv3.ClusterLoadAssignment); ok {
		const byDefault = 140
		x.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(byDefault)}
	}
	return x
}

// put sends changed resources to Envoy and removes old ones.
func (s *Server) put(kind string, update map[string]types.Resource, gone []string) error {
	if len(update)+len(gone) == 0 {
		return nil
	}
	s.mu.Lock()
	for _, name := range gone {
		delete(s.seen, kind+" "+name)
	}
	s.mu.Unlock()
	return s.caches[kind].UpdateResources(update, gone)
}

// missing returns the names that are in from and not in to.
func missing(from, to map[string]types.Resource) (gone []string) {
	for name := range from {
		if to[name] == nil {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// await waits until Envoy has taken or refused the wanted version of each resource.
func (s *Server) await(ctx context.Context, wanted map[string]string) error {
	for {
		s.mu.Lock()
		open, changed := s.stream != 0, s.changed
		var rejected RejectedError
		waiting := 0
		for key, version := range wanted {
			switch a := s.seen[key]; {
			case a.version != version || s.unanswered(key):
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
			return fmt.Errorf("Envoy has not taken %d of the configuration's %d changes: %w", waiting,
				len(wanted), ctx.Err())
		}
	}
}

// unanswered reports whether Envoy has received a resource and has not answered it yet.
func (s *Server) unanswered(key string) bool {
	for _, x := range s.sent {
		if _, ok := x[key]; ok {
			return true
		}
	}
	return false
}

// forget clears everything known about Envoy's state, for a new Envoy.
func (s *Server) forget() {
	s.sent, s.seen = map[string]map[string]string{}, map[string]answer{}
}

func (s *Server) wakeWaiters() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// OnDeltaStreamOpen is called when Envoy opens a stream.
func (s *Server) OnDeltaStreamOpen(_ context.Context, id int64, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = id
	s.forget()
	s.wakeWaiters()
	return nil
}

// OnDeltaStreamClosed is called when Envoy's stream ends.
func (s *Server) OnDeltaStreamClosed(id int64, _ *corev3.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == id {
		s.stream = 0
		s.wakeWaiters()
	}
}

// OnStreamDeltaResponse records the resources of a response until Envoy answers it.
func (s *Server) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest,
	r *discoveryv3.DeltaDiscoveryResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := map[string]string{}
	for _, one := range r.GetResources() {
		x[r.GetTypeUrl()+" "+one.GetName()] = one.GetVersion()
	}
	s.sent[r.GetTypeUrl()+" "+r.GetNonce()] = x
}

// maxReason limits the reason of a refusal, because Envoy repeats the whole resource in it.
const maxReason = 512

// OnStreamDeltaRequest records whether Envoy took the resources of a response.
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
	// If a refusal is for several resources, Envoy names the ones that it means.
	means := func(key string) bool { _, name, _ := strings.Cut(key, " "); return strings.Contains(why, name) }
	named := slices.ContainsFunc(slices.Collect(maps.Keys(x)), means)
	for key, version := range x {
		a := answer{version: version}
		if !named || means(key) {
			a.rejected = why
		}
		s.seen[key] = a
	}
	s.wakeWaiters()
	return nil
}
