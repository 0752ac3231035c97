package xds

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// fake asks for clusters and routes as Envoy does, and takes, refuses or does not answer what it gets.
type fake struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	mu     sync.Mutex
	has    map[string]string // versions in force, by name
	refuse string            // a version that it refuses, by its resource's name
	deaf   bool
	held   []*discoveryv3.DeltaDiscoveryResponse // while it is deaf
}

func connect(t *testing.T, s *Server) *fake {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{has: map[string]string{}}
	if f.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(
		t.Context()); err != nil {
		t.Fatal(err)
	}
	f.send(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType, ResourceNamesSubscribe: []string{"*"}})
	f.send(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.RouteType, ResourceNamesSubscribe: []string{"r"}})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			r, err := f.stream.Recv()
			if err != nil {
				return
			}
			f.take(t, r)
		}
	})
	t.Cleanup(func() { conn.Close(); reading.Wait() })
	return f
}

func (f *fake) send(t *testing.T, r *discoveryv3.DeltaDiscoveryRequest) {
	if err := f.stream.Send(r); err != nil {
		t.Error(err)
	}
}

func (f *fake) take(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deaf {
		f.held = append(f.held, r)
		return
	}
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
	for _, x := range r.Resources {
		if f.refuse != "" && strings.Contains(string(x.Resource.Value), f.refuse) {
			answer.ErrorDetail = status.New(codes.InvalidArgument, x.Name+" is bad").Proto()
			continue
		}
		f.has[x.Name] = string(x.Resource.Value)
	}
	for _, name := range r.RemovedResources {
		delete(f.has, name)
	}
	f.send(t, answer)
}

// hear lets the fake answer again, starting with the responses that it got meanwhile.
func (f *fake) hear(t *testing.T) {
	f.mu.Lock()
	f.deaf = false
	held := f.held
	f.held = nil
	f.mu.Unlock()
	for _, r := range held {
		f.take(t, r)
	}
}

// now returns the configuration that the fake has in force.
func (f *fake) now() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.has)) {
		for _, word := range []string{"good", "other", "bad"} {
			if strings.Contains(f.has[name], word) {
				out = append(out, name+"="+word)
			}
		}
	}
	return strings.Join(out, " ")
}

// state is a cluster and a route that are marked.
func state(mark string, more ...string) State {
	s := State{}
	s.Add("r", &routev3.RouteConfiguration{Name: "r", InternalOnlyHeaders: []string{mark}})
	for _, name := range append(more, "c") {
		s.Add(name, &clusterv3.Cluster{Name: name, AltStatName: mark})
	}
	return s
}

// What Envoy refuses, or does not take, is not in force afterwards, and what follows is.
func TestLastGoodState(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*Server, *fake) {
		s, err := Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		f := connect(t, s)
		eventually.Is(t, "the stream", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.stream != 0
		})
		if err := s.Set(t.Context(), state("good")); err != nil {
			t.Fatal(err)
		}
		return s, f
	}
	again := func(t *testing.T, s *Server, f *fake) {
		t.Helper()
		eventually.Is(t, "the last good state", func() bool { return f.now() == "c=good r=good" })
		if err := s.Set(t.Context(), state("other", "d")); err != nil || f.now() != "c=other d=other r=other" {
			t.Errorf("the next state: %v, in force: %s", err, f.now())
		}
	}
	// A cluster is refused before anything was said of routes.
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		s, f := start(t)
		f.refuse = "bad"
		err := s.Set(t.Context(), state("bad", "d"))
		if rejected, ok := err.(*RejectedError); !ok || rejected.Reason != "c is bad" && rejected.Reason != "d is bad" { //nolint:errorlint // nothing else went wrong
			t.Errorf("%v", err)
		}
		again(t, s, f)
	})
	deaf := func(f *fake) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.deaf = true
	}
	response := func(t *testing.T, f *fake) {
		t.Helper()
		eventually.Is(t, "a response", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.held) > 0
		})
	}
	t.Run("not taken", func(t *testing.T) {
		t.Parallel()
		s, f := start(t)
		deaf(f)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- s.Set(ctx, state("other", "d")) }()
		response(t, f)
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		f.hear(t)
		again(t, s, f)
	})
	t.Run("not taken in time", func(t *testing.T) {
		t.Parallel()
		s, f := start(t)
		deaf(f)
		most := s.most
		s.most = 0
		if err := s.Set(t.Context(), state("other", "d")); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "Envoy has not taken 2 of the configuration's 2 changes") {
			t.Errorf("%v", err)
		}
		s.most = most
		response(t, f)
		f.hear(t)
		again(t, s, f)
	})
	t.Run("taken back", func(t *testing.T) {
		t.Parallel()
		s, f := start(t)
		if err := s.Set(t.Context(), state("other", "d")); err != nil {
			t.Fatal(err)
		}
		if err := s.Back(t.Context(), state("good")); err != nil {
			t.Fatal(err)
		}
		again(t, s, f)
	})
}
