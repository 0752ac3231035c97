package mirror

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
)

// kinds are the resources of a recording's objects.
var kinds = map[string]schema.GroupVersionResource{
	"Pod":                   Pool[0],
	"InferencePool":         Pool[1],
	"InferenceObjective":    Pool[5],
	"InferenceModelRewrite": Pool[6],
}

// line is a recorded run of the real endpoint picker with a real API server.
type line struct {
	ID       string
	Config   string
	Flags    []string
	PoolName string `json:"pool_name"`
	Objects  json.RawMessage
	Steps    []step
}

type step struct {
	Create  string  `json:"kube_create"`
	Patch   *change `json:"kube_patch"`
	Delete  *change `json:"kube_delete"`
	Refused json.RawMessage
	Probes  string
	Runs    []struct{ Answer string }
}

type change struct {
	Kind, Name, Subresource string
	Merge                   json.RawMessage `json:"merge_patch"`
}

// server is an API server with the CRDs of Pool, which take any field.
type server struct {
	t       *testing.T
	cluster *testcluster.Cluster
	client  dynamic.Interface
}

func startServer(t *testing.T) *server {
	s := &server{t: t, cluster: testcluster.Start(t)}
	var err error
	if s.client, err = dynamic.NewForConfig(s.cluster.Config); err != nil {
		t.Fatal(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	for kind, r := range kinds {
		if r.Group != "" {
			s.create(crds, "", fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: %[1]s.%[2]s, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}}, spec: {group: %[2]s,
scope: Namespaced, names: {plural: %[1]s, kind: %[3]s}, versions: [{name: %[4]s, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, r.Resource, r.Group, kind, r.Version))
		}
	}
	for _, r := range kinds {
		eventually.Is(t, r.Resource+" are served", func() bool {
			_, err := s.client.Resource(r).Namespace("default").List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
	return s
}

// create makes an object with its status. It waits for what the object needs, such as a namespace's service account.
func (s *server) create(r schema.GroupVersionResource, namespace, text string) {
	s.t.Helper()
	x := &unstructured.Unstructured{}
	var fields dict
	err := yaml.Unmarshal([]byte(text), &fields)
	raw, marshalErr := json.Marshal(fields)
	if err := errors.Join(err, marshalErr, x.UnmarshalJSON(raw)); err != nil {
		s.t.Fatal(err)
	}
	status := x.Object["status"]
	eventually.Is(s.t, x.GetName()+" is created", func() bool {
		_, err := s.client.Resource(r).Namespace(namespace).Create(s.t.Context(), x, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	if status != nil {
		patch, err := json.Marshal(dict{"status": status})
		if err != nil {
			s.t.Fatal(err)
		}
		s.patch(namespace, &change{x.GetKind(), x.GetName(), "status", patch})
	}
}

func (s *server) patch(namespace string, c *change) {
	s.t.Helper()
	var sub []string
	if c.Subresource != "" {
		sub = []string{c.Subresource}
	}
	if _, err := s.client.Resource(
		kinds[c.Kind],
	).Namespace(
		namespace,
	).Patch(
		s.t.Context(),
		c.Name,
		types.MergePatchType,
		c.Merge,
		metav1.PatchOptions{},
		sub...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) namespace(name string) {
	s.create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "",
		"{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
}

// candidates returns a pool's endpoints in a directory, as a recording writes them, or the error of its objects.
func candidates(dir, namespace, pool string) string {
	set := &objects.Set{DefaultNamespace: namespace}
	if err := files.Manifests("objects", dir, objects.MaxFileBytes, set.Add); err != nil {
		return err.Error()
	}
	new(objects.Ages).Settle(set)
	var list []string
	for _, e := range set.Select(namespace, pool).Endpoints {
		list = append(list, net.JoinHostPort(e.Address, e.Port))
	}
	slices.Sort(list)
	return strings.Join(append([]string{"candidates"}, list...), " ")
}

// played is a recorded run in a namespace of its own, with a mirror of it.
type played struct {
	*server
	namespace, dir, pool string
	// texts are the run's objects as they were recorded, by kind and name.
	texts map[string][]byte
}

// play creates the objects of a run and mirrors them.
func (s *server) play(t *testing.T, l *line, namespace string) *played {
	p := &played{&server{t, s.cluster, s.client}, namespace, t.TempDir(), l.PoolName, map[string][]byte{}}
	if p.pool == "" {
		p.pool = "sim-pool"
	}
	p.server.namespace(namespace)
	order := json.NewDecoder(bytes.NewReader(l.Objects))
	for _, err := order.Token(); err == nil && order.More(); {
		_, _ = order.Token()
		var text string
		if err := order.Decode(&text); err != nil {
			t.Fatal(err)
		}
		p.step(&step{Create: text})
	}
	if err := Start(t.Context(), Options{Client: s.client, Namespace: namespace, Resources: Pool, Dir: p.dir,
		Check: PoolObject, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return p
}

// step plays a change of an object, and reports whether it was one.
func (p *played) step(x *step) bool {
	p.t.Helper()
	var err error
	switch {
	case len(x.Refused) > 0: // by a CRD's schema, which this API server does not have
		return false
	case x.Create != "":
		_, rest, _ := strings.Cut(x.Create, "kind: ")
		kind, _, _ := strings.Cut(rest, "\n")
		p.create(kinds[kind], p.namespace, x.Create)
		var o dict
		if err = yaml.Unmarshal([]byte(x.Create), &o); err == nil {
			key := kind + "/" + o["metadata"].(dict)["name"].(string)
			p.texts[key], err = json.Marshal(o)
		}
	case x.Patch != nil:
		p.patch(p.namespace, x.Patch)
		key := x.Patch.Kind + "/" + x.Patch.Name
		p.texts[key], err = jsonpatch.MergePatch(p.texts[key], x.Patch.Merge)
	case x.Delete != nil:
		delete(p.texts, x.Delete.Kind+"/"+x.Delete.Name)
		err = p.client.Resource(kinds[x.Delete.Kind]).Namespace(p.namespace).Delete(p.t.Context(), x.Delete.Name,
			metav1.DeleteOptions{})
	default:
		return false
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return true
}

// recorded calls play with each run of a recording that has a pool.
func recorded(t *testing.T, name string, play func(t *testing.T, n int, l *line)) {
	t.Helper()
	raw, err := os.Open("../../" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	text, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(text)
	scan.Buffer(nil, 1<<22)
	for n := 0; scan.Scan(); n++ {
		var l line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(l.Flags, func(f string) bool { return strings.HasPrefix(f, "--endpoint-selector") }) {
			t.Run(l.ID, func(t *testing.T) { play(t, n, &l) })
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
}

// A picker has the recorded candidates of the real one after each recorded change of pods and pools.
func TestRecordedPools(t *testing.T) {
	s := startServer(t)
	probed := 0
	recorded(t, "internal/parity/testdata/kubernetes-pool", func(t *testing.T, n int, l *line) {
		if strings.Contains(l.Config, "filter") {
			return // fewer candidates than endpoints
		}
		p := s.play(t, l, fmt.Sprint("recorded-", n))
		for i := range l.Steps {
			x := &l.Steps[i]
			if p.step(x) || x.Probes == "" {
				continue
			}
			want := x.Runs[len(x.Runs)-1].Answer
			if strings.HasPrefix(want, "503") {
				want = "candidates"
			}
			eventually.Is(t, fmt.Sprintf("step %d: %s", i, want), func() bool {
				return candidates(p.dir, p.namespace, p.pool) == want
			})
			probed++
		}
	})
	if probed < 30 {
		t.Errorf("%d probes were played, expected at least 30", probed)
	}
}

// inputs returns what a picker reads of its objects, as text. Rewrites that were created in one second have no order.
func inputs(set *objects.Set, err error, namespace, pool string) string {
	if err != nil {
		return err.Error()
	}
	x := set.Select(namespace, pool)
	rewrites := slices.SortedFunc(slices.Values(x.Objects.Rewrites), func(a, b picker.Rewrite) int {
		return strings.Compare(a.Name, b.Name)
	})
	var endpoints []string
	for _, e := range x.Endpoints {
		endpoints = append(endpoints, fmt.Sprint(e.Name, e.Address, e.Port, e.Rank, e.Labels))
	}
	text, err := json.Marshal([]any{x.Found, endpoints, x.Objects.Objectives, x.Priorities, rewrites})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// After each recorded change, a picker reads of the mirror what it reads of the recorded objects. With these inputs,
// internal/parity compares every recorded answer of rewrites, priorities and debug pages.
func TestRecordedObjects(t *testing.T) {
	s := startServer(t)
	compared := 0
	for _, name := range []string{"internal/parity/testdata/kubernetes-rewrite", "internal/parity/testdata/kubernetes-debug",
		"core/epp/picker/flowcontrol/testdata/recordings/kubernetes-priority"} {
		topic := name[strings.LastIndex(name, "-")+1:]
		recorded(t, name, func(t *testing.T, n int, l *line) {
			p := s.play(t, l, fmt.Sprint(topic, "-", n))
			compare := func(at string) {
				want := &objects.Set{DefaultNamespace: p.namespace}
				var errs []error
				for _, key := range slices.Sorted(maps.Keys(p.texts)) {
					errs = append(errs, want.Add(key, p.texts[key]))
				}
				expected := inputs(want, errors.Join(errs...), p.namespace, p.pool)
				eventually.Is(t, at+": "+expected, func() bool {
					set := &objects.Set{DefaultNamespace: p.namespace}
					err := files.Manifests("objects", p.dir, objects.MaxFileBytes, set.Add)
					return inputs(set, err, p.namespace, p.pool) == expected
				})
				compared++
			}
			compare("start")
			for i := range l.Steps {
				if p.step(&l.Steps[i]) {
					compare(fmt.Sprint("step ", i))
				}
			}
		})
	}
	if compared < 80 {
		t.Errorf("%d states were compared, expected at least 80", compared)
	}
}

// gate is a network that fails on demand.
type gate struct {
	mu    sync.Mutex
	away  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return nil, errors.New("the network is down")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) set(away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = away
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// lines counts log lines with a text.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// While the API server is away the objects stay and the log says so; afterwards what has changed meanwhile comes, also
// the removal of what is gone.
func TestServerAway(t *testing.T) {
	s := startServer(t)
	s.namespace("llm")
	text := func(x *unstructured.Unstructured) string {
		raw, err := x.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	s.create(Pool[1], "llm", text(pool()))
	s.create(Pool[0], "llm", text(pod(0, "True")))
	s.create(Pool[0], "llm", text(pod(1, "True")))
	var network gate
	config := rest.CopyConfig(s.cluster.Config)
	config.Dial = network.dial
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), &lines{}
	if err := Start(t.Context(), Options{Client: client, Namespace: "llm", Resources: Pool, Dir: dir, Check: PoolObject,
		Log: slog.New(slog.NewTextHandler(log, nil))}); err != nil {
		t.Fatal(err)
	}
	before := "candidates 10.0.0.1:8000 10.0.0.2:8000"
	if got := candidates(dir, "llm", "llama"); got != before {
		t.Fatalf("%s, expected %s", got, before)
	}
	network.set(true)
	s.create(Pool[0], "llm", text(pod(2, "True")))
	if err := s.client.Resource(
		Pool[0],
	).Namespace(
		"llm",
	).Delete(
		t.Context(),
		"server-0",
		metav1.DeleteOptions{},
	); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the log", func() bool { return log.has("the API server does not answer; what was read stays") })
	if got := candidates(dir, "llm", "llama"); got != before {
		t.Errorf("%s without an API server, expected %s", got, before)
	}
	network.set(false)
	eventually.Is(t, "the changes", func() bool {
		return candidates(dir, "llm", "llama") == "candidates 10.0.0.2:8000 10.0.0.3:8000"
	})
}
