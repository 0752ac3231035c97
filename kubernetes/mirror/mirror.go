// Package mirror keeps a directory equal to an API server's objects, for the parts that read a directory (--objects):
// the same readers, with the same effect. Begin with Start.
//
// While the API server is away, the directory stays as it was. Objects are spread over files, so that a change of one
// rewrites only a few.
package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
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
	Client    dynamic.Interface
	Namespace string
	Resources []schema.GroupVersionResource
	// Dir is the directory, which has no other files.
	Dir string
	Log *slog.Logger
}

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

// Start fills the directory, and then follows the API server until ctx ends. It waits for an API server that does not
// answer. The error is of ctx, or of an API server that refuses.
func Start(ctx context.Context, o Options) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(o.Client, 0, o.Namespace, nil)
	changes := make(chan shard, 1024)
	dirty := map[shard]bool{}
	for _, r := range o.Resources {
		served, err := served(ctx, o, r)
		if err != nil {
			return err
		}
		if !served {
			o.Log.Info("objects: not installed in the cluster", slog.String("resource", r.GroupResource().String()))
			continue
		}
		for n := range uint32(shards) {
			dirty[shard{r, n}] = true
		}
		changed := func(x any) {
			if gone, ok := x.(cache.DeletedFinalStateUnknown); ok {
				x = gone.Obj
			}
			if x, ok := x.(*unstructured.Unstructured); ok {
				select {
				case changes <- shardOf(r, x.GetName()):
				case <-ctx.Done():
				}
			}
		}
		informer := factory.ForResource(r).Informer()
		err = errors.Join(informer.SetTransform(slim), informer.SetWatchErrorHandler(
			func(_ *cache.Reflector, err error) {
				o.Log.Warn("objects: the API server does not answer; what was read stays", "error", err.Error())
			}))
		if err == nil {
			_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed,
				UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed})
		}
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	drained := make(chan struct{})
	go func() { // handlers may wait for their reader
		defer close(drained)
		factory.WaitForCacheSync(ctx.Done())
	}()
	for waiting := true; waiting; {
		select {
		case <-changes:
		case <-drained:
			waiting = false
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := write(o, factory, dirty); err != nil {
		return err
	}
	go follow(ctx, o, factory, changes)
	return nil
}

// served reports whether the API server has a resource.
func served(ctx context.Context, o Options, r schema.GroupVersionResource) (bool, error) {
	for {
		_, err := o.Client.Resource(r).Namespace(o.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsNotFound(err):
			return false, nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return false, fmt.Errorf("objects: %w; expected the role of the chart, which may get, list and watch them",
				err)
		}
		o.Log.Warn("objects: the API server does not answer", "error", err.Error())
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
	if u.GetKind() == "Pod" {
		delete(u.Object, "spec")
		status, _, err := unstructured.NestedMap(u.Object, "status")
		if err != nil {
			return nil, err
		}
		u.Object["status"] = map[string]any{"phase": status["phase"], "podIP": status["podIP"],
			"conditions": status["conditions"]}
	}
	return u, nil
}

// follow writes the changed files until ctx ends.
func follow(ctx context.Context, o Options, factory dynamicinformer.DynamicSharedInformerFactory, changes chan shard) {
	for {
		select {
		case <-ctx.Done():
			factory.Shutdown()
			return
		case first := <-changes:
			dirty := map[shard]bool{first: true}
			pause.For(ctx, settle)
			for more := true; more; {
				select {
				case next := <-changes:
					dirty[next] = true
				default:
					more = false
				}
			}
			for ctx.Err() == nil {
				err := write(o, factory, dirty)
				if err == nil {
					break
				}
				o.Log.Error("objects: not written; the next try follows", "error", err.Error())
				pause.For(ctx, retry)
			}
		}
	}
}

// write writes files with the newest objects of the informers.
func write(o Options, factory dynamicinformer.DynamicSharedInformerFactory, dirty map[shard]bool) error {
	texts := map[shard]*bytes.Buffer{}
	done := map[schema.GroupVersionResource]bool{}
	for s := range dirty {
		texts[s] = &bytes.Buffer{}
		done[s.resource] = true
	}
	for r := range done {
		list, err := factory.ForResource(r).Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, x := range list {
			u := x.(*unstructured.Unstructured)
			if to := texts[shardOf(r, u.GetName())]; to != nil {
				text, err := json.Marshal(u.Object)
				if err != nil {
					return err
				}
				to.WriteString("---\n")
				to.Write(text)
				to.WriteByte('\n')
			}
		}
	}
	for s, text := range texts {
		path := filepath.Join(o.Dir, s.file())
		var err error
		if text.Len() > 0 {
			err = files.Replace(path, text.Bytes())
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
