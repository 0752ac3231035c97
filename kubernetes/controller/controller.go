// Package controller makes on a cluster what document 003's controller makes (docs/documents.md#document-003):
// Deployments, Services and PodDisruptionBudgets of LocalModels, InferenceModels and InferencePools of
// serving.kserve.io, with the rules by which windtunnel up makes them on one machine. It writes the status of the three
// kinds. Begin with New.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/kubernetes/mirror"
	"github.com/windtunnel/windtunnel/live/up"
)

const (
	kindPool  = "InferencePool"
	kindModel = "InferenceModel"
	kindLocal = "LocalModel"
)

var kserve = schema.GroupVersion{Group: objects.GroupKServe, Version: "v1alpha1"}

// The resources that the controller reads and writes.
var (
	pools       = kserve.WithResource("inferencepools")
	models      = kserve.WithResource("inferencemodels")
	localModels = kserve.WithResource("localmodels")
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	budgets     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// written maps the kinds that the controller makes to their resources.
var written = map[string]schema.GroupVersionResource{"Deployment": deployments, "Service": services,
	"PodDisruptionBudget": budgets}

// Options configure a Controller.
type Options struct {
	Client dynamic.Interface
	Images Images
	// Namespace limits the controller to one namespace; "" is all.
	Namespace string
	// Period is how often it asks the pods for the status of their pools.
	Period time.Duration
	// Metrics, if not nil, counts what the controller fails to read.
	Metrics *mirror.Metrics
	Log     *slog.Logger
}

// Controller keeps a cluster's objects as the models ask for.
type Controller struct {
	o       Options
	from    mirror.Options
	stores  map[schema.GroupVersionResource]cache.Store
	changed chan struct{}
	pools   up.PoolWatches
}

// New returns a Controller that begins with Run.
func New(o Options) *Controller {
	return &Controller{o: o, changed: make(chan struct{}, 1),
		pools: up.PoolWatches{Client: &http.Client{Timeout: 2 * time.Second}, Log: o.Log, Origin: time.Now()},
		from: mirror.Options{Client: o.Client, Namespace: o.Namespace, Metrics: o.Metrics, Log: o.Log,
			Resources: []schema.GroupVersionResource{pools, models, localModels, deployments, services, budgets, pods}}}
}

// follow fills the stores, and keeps them equal to the API server's objects. Its error is an API server that refuses,
// or that lacks document 003's kinds.
func (c *Controller) follow(ctx context.Context) error {
	var err error
	c.stores, err = mirror.Follow(ctx, &c.from, nil,
		func(schema.GroupVersionResource, string) { pause.Wake(c.changed) },
		func(r schema.GroupVersionResource) error {
			return exit.Hint(exit.Environment, fmt.Errorf("the cluster has no %s", r.GroupResource()),
				"kubectl apply -k deploy/crds")
		})
	if err == nil {
		c.o.Log.Info("controller: every object is read")
	}
	return err
}

// Run reconciles until ctx ends. While the API server is away, what was made stays.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.follow(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	tick := time.NewTicker(c.o.Period)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
			c.o.Log.Error("controller: not everything is as the models ask for; the next round tries again",
				slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
		case <-c.changed:
		case <-tick.C:
		}
	}
	return nil
}

// list returns the objects of a resource from the informer's store, which the caller must not change.
func (c *Controller) list(r schema.GroupVersionResource) (out []*unstructured.Unstructured) {
	for _, x := range c.stores[r].List() {
		out = append(out, x.(*unstructured.Unstructured))
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// space holds the objects of one namespace.
type space struct {
	asked, others, ours, pods []*unstructured.Unstructured
}

// reconcile brings every namespace to the state that its models ask for.
func (c *Controller) reconcile(ctx context.Context) error {
	spaces := map[string]*space{}
	each := func(r schema.GroupVersionResource, to func(*space, *unstructured.Unstructured)) {
		for _, x := range c.list(r) {
			n := x.GetNamespace()
			if spaces[n] == nil {
				spaces[n] = &space{}
			}
			to(spaces[n], x)
		}
	}
	for _, r := range []schema.GroupVersionResource{pools, models, localModels} {
		each(r, func(s *space, x *unstructured.Unstructured) { s.asked = append(s.asked, x) })
	}
	for _, r := range written {
		each(r, func(s *space, x *unstructured.Unstructured) {
			if x.GetLabels()[managedBy] == name {
				s.ours = append(s.ours, x)
			} else if r != budgets {
				s.others = append(s.others, x)
			}
		})
	}
	each(pods, func(s *space, x *unstructured.Unstructured) { s.pods = append(s.pods, x) })
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(spaces)) {
		if s := spaces[n]; len(s.asked)+len(s.ours) > 0 {
			errs = append(errs, c.namespace(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// namespace reconciles one namespace. An object with a mistake is left out and reported in its status, and while there
// is one, nothing in the namespace is deleted.
func (c *Controller) namespace(ctx context.Context, s *space) error {
	good, wrong := readable(s.asked)
	others, _ := readable(s.others)
	m, err := makeObjects(append(good, others...), c.o.Images)
	if err != nil {
		return err // the objects that are read together are correct one by one
	}
	errs := []error{c.apply(ctx, m, s.ours, len(wrong) == 0)}
	for _, x := range s.asked {
		errs = append(errs, c.status(ctx, x, m, s, wrong[x]))
	}
	return errors.Join(errs...)
}

// readable returns the objects that windtunnel can read, and the mistakes of the others.
func readable(list []*unstructured.Unstructured) (good []*unstructured.Unstructured,
	wrong map[*unstructured.Unstructured]error) {
	wrong = map[*unstructured.Unstructured]error{}
	for _, x := range list {
		if _, err := read([]*unstructured.Unstructured{x}); err != nil {
			wrong[x] = err
			continue
		}
		good = append(good, x)
	}
	return good, wrong
}

// apply creates, updates and deletes until ours are the made objects.
func (c *Controller) apply(ctx context.Context, m *made, ours []*unstructured.Unstructured, remove bool) error {
	have := map[string]*unstructured.Unstructured{}
	for _, x := range ours {
		have[placeOf(x)] = x
	}
	var errs []error
	for _, want := range m.objects {
		client := c.o.Client.Resource(written[want.GetKind()]).Namespace(want.GetNamespace())
		now := have[placeOf(want)]
		delete(have, placeOf(want))
		var err error
		switch {
		case now == nil:
			_, err = client.Create(ctx, want, metav1.CreateOptions{})
		default:
			scaled(want, now, m.set)
			if contains(now.Object, want.Object) {
				continue
			}
			next := now.DeepCopy()
			next.SetOwnerReferences(want.GetOwnerReferences())
			all := next.GetAnnotations()
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, want.GetAnnotations())
			next.SetAnnotations(all)
			for field, value := range want.Object["spec"].(dict) {
				errs = append(errs, unstructured.SetNestedField(next.Object, value, "spec", field))
			}
			_, err = client.Update(ctx, next, metav1.UpdateOptions{})
		}
		errs = append(errs, c.done(want, err))
	}
	if !remove {
		return errors.Join(errs...)
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		x := have[k]
		err := c.o.Client.Resource(written[x.GetKind()]).Namespace(x.GetNamespace()).Delete(ctx, x.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(x.GetUID())}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		errs = append(errs, c.done(x, err))
	}
	return errors.Join(errs...)
}

// done names the object in an error. Another writer's newer version is no error: its event starts the next round.
func (c *Controller) done(x *unstructured.Unstructured, err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err):
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf(
			"%s/%s: another owner has it; expected none, or the label %s: %s; rename or delete it",
			x.GetNamespace(),
			placeOf(x),
			managedBy,
			name,
		)
	}
	return fmt.Errorf("%s/%s: %w", x.GetNamespace(), placeOf(x), err)
}

// scaled keeps the number of replicas that an autoscaler has set, within the bounds of the pool, until the model asks
// for another one.
func scaled(want, now *unstructured.Unstructured, s *gateway.Set) {
	replicas, found, _ := unstructured.NestedInt64(now.Object, "spec", "replicas")
	if want.GetKind() != "Deployment" || !found || want.GetAnnotations()[asked] != now.GetAnnotations()[asked] {
		return
	}
	pod, _, _ := unstructured.NestedStringMap(want.Object, "spec", "template", "metadata", "labels")
	for i := range s.Pools {
		p := &s.Pools[i]
		if k := p.KServe; k != nil && k.MaxReplicas > 0 && p.Selector.Matches(pod) {
			_ = unstructured.SetNestedField(want.Object, min(max(replicas, k.MinReplicas), k.MaxReplicas), "spec",
				"replicas") // the path exists
		}
	}
}

// contains reports whether have has all that want has. An API server adds defaults to objects, and nothing to lists.
func contains(have, want any) bool {
	switch want := want.(type) {
	case dict:
		have, ok := have.(dict)
		for k, v := range want {
			if !ok || !contains(have[k], v) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want)
}
