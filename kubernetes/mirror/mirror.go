// Package mirror keeps a directory equal to an API server's objects, for the parts that read a directory (--objects):
// the same readers, with the same effect. Begin with Start.
//
// While the API server is away, the directory stays as it was, and so does the last good text of an object that its
// reader would refuse. Objects are spread over files, so that a change of one rewrites only a few.
package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// Pool are the resources of an endpoint picker; the role of a protecting sidecar allows only the first three. Those
// whose CRD is not installed are left out.
var Pool = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Group: objects.GroupV1, Version: "v1", Resource: "inferencepools"},
	{Group: objects.GroupX, Version: "v1alpha2", Resource: "inferencepools"},
	{Group: objects.GroupX, Version: "v1alpha2", Resource: "inferenceobjectives"},
	{Group: objects.GroupX, Version: "v1alpha2", Resource: "inferencemodelrewrites"},
	{Group: objects.GroupLLMD, Version: "v1alpha2", Resource: "inferenceobjectives"},
	{Group: objects.GroupLLMD, Version: "v1alpha2", Resource: "inferencemodelrewrites"},
}

const (
	// shards is the number of files of a resource: 10,000 pods are some 160 in each.
	shards = 64
	// settle is how long a round waits for further changes.
	settle = 20 * time.Millisecond
	// retry is the pause after an API server that does not answer, or a file that cannot be written.
	retry = time.Second
)

// Options configure Start.
type Options struct {
	Client dynamic.Interface
	// Namespace is the objects' namespace; "" is all. Kinds without a namespace are read whole.
	Namespace string
	Resources []schema.GroupVersionResource
	// Dir is the directory, which has no other files.
	Dir string
	// Check reads the text of one object as the readers of the directory do, and returns the mistakes in it.
	Check func(name string, text []byte) error
	// Metrics, if not nil, counts failures.
	Metrics *Metrics
	// Patience limits how long the API server may take for a list, or for the beginning of a watch; 0 is 30 seconds.
	Patience time.Duration
	Log      *slog.Logger
}

func (o *Options) patience() time.Duration { return cmp.Or(o.Patience, 30*time.Second) }

// shard is one file.
type shard struct {
	resource schema.GroupVersionResource
	number   uint32
}

func (s shard) file() string {
	return fmt.Sprintf("%s.%s-%02d.yaml", s.resource.Resource, s.resource.Group, s.number)
}

func shardOf(r schema.GroupVersionResource, name string) shard {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return shard{r, h.Sum32() % shards}
}

// entry is the last good text of an object.
type entry struct {
	version string // the newest resourceVersion that was read, good or not
	text    []byte // nil: none was good
	refused bool
}

// mirror follows an API server.
type mirror struct {
	o      Options
	stores map[schema.GroupVersionResource]cache.Store
	texts  map[shard]map[string]entry // by namespace and name

	mu      sync.Mutex
	dirty   map[shard]bool
	changed chan struct{}
}

// Start fills the directory, and then follows the API server until ctx ends. It waits for an API server that does not
// answer. The error is of ctx, or of an API server that refuses.
func Start(ctx context.Context, o Options) error {
	m := &mirror{o: o, texts: map[shard]map[string]entry{}, dirty: map[shard]bool{}, changed: make(chan struct{}, 1)}
	var err error
	m.stores, err = Follow(ctx, &o, slim,
		func(r schema.GroupVersionResource, name string) { m.change(shardOf(r, name)) },
		func(r schema.GroupVersionResource) error {
			o.Log.Info("objects: not installed in the cluster", slog.String("resource", r.GroupResource().String()))
			return nil
		})
	if err != nil {
		return err
	}
	if err := m.write(m.take()); err != nil {
		return err
	}
	go m.follow(ctx)
	return nil
}

// Follow fills a store with the objects of each of the Options' resources, and keeps it up to date until ctx ends. It
// waits for an API server that does not answer; its error is of ctx, of an API server that refuses, or of absent, which
// it calls for each resource that the API server does not have. Follow counts and logs what fails, changes each object
// by transform, which may be nil, and calls changed for each object that comes, changes or goes.
func Follow(ctx context.Context, o *Options, transform cache.TransformFunc,
	changed func(r schema.GroupVersionResource, name string),
	absent func(r schema.GroupVersionResource) error) (map[schema.GroupVersionResource]cache.Store, error) {
	stores := map[schema.GroupVersionResource]cache.Store{}
	var synced []cache.InformerSynced
	for _, r := range o.Resources {
		informer, err := follow(ctx, o, r, transform, func(name string) { changed(r, name) })
		if err == nil && informer == nil {
			err = absent(r)
		}
		if err != nil {
			return nil, err
		}
		if informer != nil {
			stores[r] = informer.GetStore()
			synced = append(synced, informer.HasSynced)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, ctx.Err()
	}
	return stores, nil
}

// follow starts an informer of a resource, which runs until ctx ends; nil if the API server does not have the resource.
func follow(ctx context.Context, o *Options, r schema.GroupVersionResource, transform cache.TransformFunc,
	changed func(name string)) (cache.SharedIndexInformer, error) {
	if served, err := served(ctx, o, r); err != nil || !served {
		return nil, err
	}
	client, patience := clientOf(o, r), o.patience()
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, how metav1.ListOptions) (_ runtime.Object, err error) {
			ctx, stop := context.WithTimeout(ctx, patience)
			defer stop()
			list, err := client.List(ctx, how)
			o.Metrics.asked(r, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, how metav1.ListOptions) (watch.Interface, error) {
			w, err := open(ctx, client, patience, how)
			o.Metrics.asked(r, err)
			return w, err
		}}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lists, o.Client),
		&unstructured.Unstructured{}, 0, cache.Indexers{})
	tell := func(x any) {
		if gone, ok := x.(cache.DeletedFinalStateUnknown); ok {
			x = gone.Obj
		}
		if x, ok := x.(*unstructured.Unstructured); ok {
			changed(x.GetName())
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell,
		UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell})
	err = errors.Join(err, informer.SetTransform(transform), informer.SetWatchErrorHandler(
		func(_ *cache.Reflector, err error) {
			what := "the API server does not answer"
			if refuses(err) {
				what = "the API server refuses"
			}
			o.Log.Warn("objects: "+what+"; what was read stays",
				slog.String("resource", r.GroupResource().String()), slog.String("error", err.Error()))
		}))
	go informer.RunWithContext(ctx)
	return informer, err
}

// open opens a watch, whose beginning an API server must answer in time.
func open(ctx context.Context, client dynamic.ResourceInterface, patience time.Duration,
	how metav1.ListOptions) (watch.Interface, error) {
	ctx, stop := context.WithCancelCause(ctx)
	late := time.AfterFunc(patience, func() { stop(context.DeadlineExceeded) })
	w, err := client.Watch(ctx, how)
	if !late.Stop() && err == nil {
		w.Stop()
		err = context.Cause(ctx)
	}
	if err != nil {
		stop(nil)
		return nil, err
	}
	return opened{w, func() { stop(nil) }}, nil
}

// opened is a watch with its context.
type opened struct {
	watch.Interface
	end func()
}

// Stop implements watch.Interface.
func (w opened) Stop() {
	w.Interface.Stop()
	w.end()
}

// clientOf returns the client of a resource, with or without a namespace.
func clientOf(o *Options, r schema.GroupVersionResource) dynamic.ResourceInterface {
	if o.Namespace == "" || r.Resource == "namespaces" || r.Resource == "gatewayclasses" {
		return o.Client.Resource(r)
	}
	return o.Client.Resource(r).Namespace(o.Namespace)
}

// refuses reports whether an error is an API server's refusal, which does not pass by itself.
func refuses(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// served reports whether the API server has a resource, and lets this client list and watch it.
func served(ctx context.Context, o *Options, r schema.GroupVersionResource) (bool, error) {
	for client := clientOf(o, r); ; {
		soon, stop := context.WithTimeout(ctx, o.patience())
		list, err := client.List(soon, metav1.ListOptions{Limit: 1})
		stop()
		if err == nil {
			var w watch.Interface
			w, err = open(ctx, client, o.patience(),
				metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: new(int64(1))})
			if err == nil {
				w.Stop()
			}
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		switch o.Metrics.asked(r, err); {
		case err == nil:
			return true, nil
		case refuses(err):
			return false, fmt.Errorf("objects: %w; expected the role of the chart, which may list and watch %s", err,
				r.GroupResource())
		}
		o.Log.Warn("objects: the API server does not answer", slog.String("error", err.Error()))
		if !pause.For(ctx, retry) {
			return false, ctx.Err()
		}
	}
}

// slim removes what no reader needs: of a pod, all but its labels, its address and its readiness.
func slim(x any) (any, error) {
	u, ok := x.(*unstructured.Unstructured)
	if !ok {
		return x, nil
	}
	u.SetManagedFields(nil)
	if status, ok := u.Object["status"].(map[string]any); ok && u.GetKind() == "Pod" {
		delete(u.Object, "spec")
		u.Object["status"] = map[string]any{"phase": status["phase"], "podIP": status["podIP"],
			"conditions": status["conditions"]}
	}
	return u, nil
}

// change marks a file as out of date.
func (m *mirror) change(s shard) {
	m.mu.Lock()
	m.dirty[s] = true
	m.mu.Unlock()
	pause.Wake(m.changed)
}

// take returns the files that are out of date, and marks all as up to date.
func (m *mirror) take() map[shard]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	dirty := m.dirty
	m.dirty = map[shard]bool{}
	return dirty
}

// follow writes the changed files until ctx ends.
func (m *mirror) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		pause.For(ctx, settle)
		for dirty := m.take(); ctx.Err() == nil; pause.For(ctx, retry) {
			err := m.write(dirty)
			if err == nil {
				break
			}
			m.o.Log.Error("objects: not written; the next try follows", slog.String("error", err.Error()))
		}
	}
}

// write writes files with the newest good texts of the informers' objects.
func (m *mirror) write(dirty map[shard]bool) error {
	now, done := map[shard]map[string]entry{}, map[schema.GroupVersionResource]bool{}
	for s := range dirty {
		now[s], done[s.resource] = map[string]entry{}, true
	}
	for r := range done {
		for _, x := range m.stores[r].List() {
			u := x.(*unstructured.Unstructured)
			s := shardOf(r, u.GetName())
			if to := now[s]; to != nil {
				key := u.GetNamespace() + "/" + u.GetName()
				to[key] = m.read(r, u, m.texts[s][key])
			}
		}
	}
	for s, entries := range now {
		var text bytes.Buffer
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			text.Write(entries[key].text)
		}
		path := filepath.Join(m.o.Dir, s.file())
		var err error
		if text.Len() > 0 {
			err = files.Replace(path, text.Bytes())
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
		m.texts[s] = entries
	}
	m.o.Metrics.refuse(done, m.texts)
	return nil
}

// read returns an object's text, or its last good one if its reader refuses the new one.
func (m *mirror) read(r schema.GroupVersionResource, u *unstructured.Unstructured, before entry) entry {
	if version := u.GetResourceVersion(); version == "" || version != before.version {
		before.version = version
		text, err := json.Marshal(u.Object)
		text = slices.Concat([]byte("---\n"), text, []byte("\n"))
		if err == nil {
			err = m.o.Check(u.GetNamespace()+"/"+u.GetName(), text)
		}
		if before.refused = err != nil; err == nil {
			before.text = text
			return before
		}
		m.o.Log.Error("objects: one is not read; its last good state stays", slog.String("kind", u.GetKind()),
			slog.String("name", u.GetNamespace()+"/"+u.GetName()), slog.String("error", err.Error()))
	}
	return before
}
