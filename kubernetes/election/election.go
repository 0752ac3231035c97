// Package election lets one of several replicas lead, by a Lease of coordination.k8s.io, with the times and the rules
// of client-go's leader election, so that windtunnel's pickers and real ones can share a Lease. Begin with Run.
//
// A leader that cannot renew the Lease stops leading, and leads again once it has the Lease. The real picker ends
// instead, which would also end requests while the API server is away.
package election

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// The times of controller-runtime's managers.
const (
	// duration is how long a Lease holds after its renewal, as others see it.
	duration = 15 * time.Second
	// deadline is how long a leader leads without a renewal.
	deadline = 10 * time.Second
	// period is the time between two tries.
	period = 2 * time.Second
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// LeaseName returns the name of the Lease of a pool's pickers, as in llm-d-router.
func LeaseName(namespace, pool string) string {
	return fmt.Sprintf("epp-%s-%s.llm-d.ai", namespace, pool)
}

// Options configure Run.
type Options struct {
	Client          dynamic.Interface
	Namespace, Name string // of the Lease
	// Lead is called with true when this replica begins to lead, and with false when it stops.
	Lead func(leads bool)
	Log  *slog.Logger
	// Period is the time between two tries; 0 is two seconds.
	Period time.Duration
}

// candidate is a replica.
type candidate struct {
	identity string
	// seen is the Lease's last known renewal, and since is when this replica saw it first: clocks may differ.
	seen  string
	since time.Time

	leads   bool
	renewed time.Time
}

// wants reports whether the candidate may take or renew a Lease with a renewal and a holder. It leads no longer if
// another replica has the Lease.
func (c *candidate) wants(now time.Time, renewal, holder string) bool {
	if c.since.IsZero() || renewal != c.seen {
		c.seen, c.since = renewal, now
	}
	c.leads = c.leads && holder == c.identity
	return holder == "" || holder == c.identity || now.Sub(c.since) > duration
}

// tried notes the outcome of a try, and reports whether the candidate leads.
func (c *candidate) tried(now time.Time, held bool) bool {
	switch {
	case held:
		c.leads, c.renewed = true, now
	case now.Sub(c.renewed) > deadline:
		c.leads = false
	}
	return c.leads
}

// Run takes part in an election until ctx ends, and then gives the Lease back.
func Run(ctx context.Context, o Options) {
	host, _ := os.Hostname() // the rest of the identity is unique
	c := &candidate{identity: host + "_" + uuid.NewString()}
	if o.Period == 0 {
		o.Period = period
	}
	failed := ""
	for led := false; ctx.Err() == nil; pause.For(ctx, o.Period) {
		held, err := o.try(ctx, c)
		if ctx.Err() != nil {
			break
		}
		if err != nil && err.Error() != failed {
			o.Log.Warn("election: the Lease was not read or written", slog.String("lease", o.Namespace+"/"+o.Name),
				slog.String("error", err.Error()))
		}
		if failed = ""; err != nil {
			failed = err.Error()
		}
		if leads := c.tried(time.Now(), held); leads != led {
			led = leads
			o.Log.Info("election: this replica leads", slog.Bool("leads", leads), slog.String("identity", c.identity))
			o.Lead(leads)
		}
	}
	if !c.leads {
		return
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer stop()
	if lease, err := o.client().Get(ending, o.Name, metav1.GetOptions{}); err == nil && holder(lease) == c.identity {
		spec := lease.Object["spec"].(map[string]any)
		spec["holderIdentity"], spec["leaseDurationSeconds"] = "", int64(1)
		if _, err = o.client().Update(ending, lease, metav1.UpdateOptions{}); err != nil {
			o.Log.Warn("election: the Lease was not given back", slog.String("error", err.Error()))
		}
	}
}

func (o *Options) client() dynamic.ResourceInterface {
	return o.Client.Resource(leases).Namespace(o.Namespace)
}

func holder(lease *unstructured.Unstructured) string { return text(lease, "holderIdentity") }

// text returns a field of a Lease's spec.
func text(lease *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(lease.Object, "spec", field)
	return value
}

// try takes or renews the Lease, and reports whether the candidate holds it now.
func (o *Options) try(ctx context.Context, c *candidate) (held bool, err error) {
	ctx, stop := context.WithTimeout(ctx, deadline/2)
	defer stop()
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	spec := map[string]any{"holderIdentity": c.identity, "leaseDurationSeconds": int64(duration / time.Second),
		"acquireTime": now, "renewTime": now, "leaseTransitions": int64(0)}
	lease, err := o.client().Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1",
			"kind": "Lease", "metadata": map[string]any{"name": o.Name, "namespace": o.Namespace}, "spec": spec}}
		_, err = o.client().Create(ctx, lease, metav1.CreateOptions{})
		return settled(err)
	}
	if err != nil || !c.wants(time.Now(), text(lease, "renewTime"), holder(lease)) {
		return false, err
	}
	times, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseTransitions")
	spec["leaseTransitions"] = times + 1
	if holder(lease) == c.identity {
		spec["acquireTime"], spec["leaseTransitions"] = text(lease, "acquireTime"), times
	}
	lease.Object["spec"] = spec
	_, err = o.client().Update(ctx, lease, metav1.UpdateOptions{})
	return settled(err)
}

// settled reports whether a write succeeded. Another replica's earlier write is no error.
func settled(err error) (held bool, _ error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}
