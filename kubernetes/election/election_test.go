package election

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// A candidate takes a Lease that nobody holds, and one that has not changed for 15 s. It stops leading 10 s after its
// last renewal, and at once when another replica has the Lease.
func TestCandidate(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	c := &candidate{identity: "a"}
	for _, step := range []struct {
		at              float64
		version, holder string
		wants           bool
	}{{0, "1", "b", false}, {14, "1", "b", false}, {14.5, "2", "b", false}, {29, "2", "b", false}, {30, "2", "b", true},
		{31, "3", "", true}, {32, "4", "a", true}} {
		if got := c.wants(at(step.at), step.version, step.holder); got != step.wants {
			t.Errorf("at %v s, version %s of %q: wants is %v", step.at, step.version, step.holder, got)
		}
	}
	for _, step := range []struct {
		at          float64
		held, leads bool
	}{{32, true, true}, {34, false, true}, {42, false, true}, {42.5, false, false}, {43, true, true}} {
		if got := c.tried(at(step.at), step.held); got != step.leads {
			t.Errorf("at %v s, held %v: leads is %v", step.at, step.held, got)
		}
	}
	if c.wants(at(44), "5", "b") || c.tried(at(44), false) {
		t.Error("it leads although b has the Lease")
	}
}

// One of two replicas leads. The other one leads once the first has ended and given the Lease back. A server that is
// away is asked again.
func TestRun(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{leases: "LeaseList"})
	failures := 2
	client.PrependReactor("get", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("the API server is away")
	})
	type replica struct {
		leads atomic.Bool
		stop  context.CancelFunc
		done  chan struct{}
	}
	begin := func() *replica {
		ctx, stop := context.WithCancel(t.Context())
		r := &replica{stop: stop, done: make(chan struct{})}
		go func() {
			defer close(r.done)
			Run(ctx, Options{Client: client, Namespace: "llm", Name: LeaseName("llm", "llama"), Lead: r.leads.Store,
				Log: slog.New(slog.DiscardHandler), Period: time.Millisecond})
		}()
		return r
	}
	a := begin()
	eventually.Is(t, "the first leads", a.leads.Load)
	b := begin()
	asked := len(client.Actions())
	eventually.Is(t, "both have tried again", func() bool { return len(client.Actions()) > asked+20 })
	if b.leads.Load() || !a.leads.Load() {
		t.Error("the second leads beside the first")
	}
	a.stop()
	<-a.done
	eventually.Is(t, "the second leads", b.leads.Load)
	x, err := client.Resource(leases).Namespace("llm").Get(t.Context(), "epp-llm-llama.llm-d.ai", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(x.Object, "spec", "leaseTransitions"); n != 1 {
		t.Errorf("%d transitions: %v", n, x.Object["spec"])
	}
	b.stop()
	<-b.done
}
