package up

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/internal/pause"
)

const (
	// statusPeriod is how often pods are asked how they are, and statusPatience how long they
	// may take to say it.
	statusPeriod   = time.Second
	statusPatience = 2 * time.Second
)

// told are the families of a model server's metrics that a pool's status is made of.
const (
	waitingRequests = "vllm:num_requests_waiting"
	busyPercent     = "vllm_gpu_utilization_percent"
	queriedTokens   = "vllm:prefix_cache_queries_total"
	cachedTokens    = "vllm:prefix_cache_hits_total"
	answered        = "vllm:request_success_total"
)

// statusWriter keeps the status of all objects in a file.
type statusWriter struct {
	u      *Up
	path   string
	client *http.Client
	// since is when each condition became what it is.
	since map[string]transition
	// answered are the requests that each pool's pods had answered when they were asked last, and
	// when that was.
	answered map[string]count
	written  []byte
}

type transition struct {
	status string
	at     time.Time
}

type count struct {
	n  float64
	at time.Time
}

// WriteStatus keeps the status of every object in a file, as a controller writes it into the
// objects: conditions, parents, and of document 003's InferencePools what is counted of their pods.
// Pods are asked once a second, until ctx ends; an error is that the file could not be written.
func (u *Up) WriteStatus(ctx context.Context, path string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	w := &statusWriter{u: u, path: path, client: &http.Client{Transport: transport, Timeout: statusPatience}, since: map[string]transition{}, answered: map[string]count{}}
	for {
		if err := w.write(ctx); err != nil || !pause.For(ctx, statusPeriod) {
			return err
		}
	}
}

// write writes the file anew where it says something else: the old or the new one is there, whole.
func (w *statusWriter) write(ctx context.Context) error {
	w.u.applying.Lock()
	s, program, pods, out := w.u.objects, w.u.program, sorted(w.u.pods), maps.Clone(w.u.ejected)
	w.u.applying.Unlock()
	var text []byte
	for _, x := range program.Status {
		status := map[string]any{}
		if x.Kind == "InferencePool" {
			if p := s.Pool(x.Namespace, x.Name); p != nil && p.KServe != nil {
				status = w.pool(ctx, s, p, pods, out["pool/"+x.Namespace+"/"+x.Name])
			}
		}
		w.conditions(&x, status)
		metadata := map[string]any{"name": x.Name}
		if x.Namespace != "" {
			metadata["namespace"] = x.Namespace
		}
		one, err := yaml.Marshal(map[string]any{"apiVersion": version(s, &x), "kind": x.Kind, "metadata": metadata, "status": status})
		if err != nil {
			return err
		}
		text = append(append(text, "---\n"...), one...)
	}
	if ctx.Err() != nil || bytes.Equal(text, w.written) {
		return nil
	}
	if err := os.WriteFile(w.path+".new", text, 0o600); err != nil {
		return err
	}
	w.written = text
	return os.Rename(w.path+".new", w.path)
}

// version is the apiVersion of an object's kind.
func version(s *gateway.Set, x *gateway.Status) string {
	if x.Kind != "InferencePool" {
		return gateway.Group + "/v1"
	}
	switch p := s.Pool(x.Namespace, x.Name); {
	case p != nil && p.Group == objects.GroupKServe:
		return objects.GroupKServe + "/v1alpha1"
	case p != nil && p.Group == objects.GroupX:
		return objects.GroupX + "/v1alpha2"
	}
	return objects.GroupV1 + "/v1"
}

// conditions adds what the gateway says of the object.
func (w *statusWriter) conditions(x *gateway.Status, status map[string]any) {
	of := x.Kind + " " + x.Namespace + "/" + x.Name
	if len(x.Conditions) > 0 {
		status["conditions"] = w.dated(of, x.Conditions)
	}
	var listeners, parents []any
	for _, l := range x.Listeners {
		kinds := []any{}
		for _, k := range l.Kinds {
			kinds = append(kinds, map[string]any{"group": gateway.Group, "kind": k})
		}
		listeners = append(listeners, map[string]any{"name": l.Name, "attachedRoutes": l.Attached, "supportedKinds": kinds, "conditions": w.dated(of+" listener "+l.Name, l.Conditions)})
	}
	for _, p := range x.Parents {
		ref := map[string]any{"group": gateway.Group, "kind": "Gateway"}
		if p.Ref == nil {
			ref["namespace"], ref["name"], _ = strings.Cut(p.Gateway, "/")
		} else {
			ref["name"] = p.Ref.Name
			if p.Ref.Namespace != "" {
				ref["namespace"] = p.Ref.Namespace
			}
			if p.Ref.Section != "" {
				ref["sectionName"] = p.Ref.Section
			}
		}
		parents = append(parents, map[string]any{"parentRef": ref, "conditions": w.dated(fmt.Sprint(of, " at ", ref), p.Conditions)})
	}
	for field, list := range map[string][]any{"listeners": listeners, "parents": parents} {
		if len(list) > 0 {
			status[field] = list
		}
	}
}

// dated are conditions with when each became what it is.
func (w *statusWriter) dated(of string, list []gateway.Condition) (out []any) {
	for _, c := range list {
		key := of + " " + c.Type
		if t, there := w.since[key]; !there || t.status != c.Status {
			w.since[key] = transition{c.Status, time.Now()}
		}
		out = append(out, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": w.since[key].at.UTC().Format(time.RFC3339)})
	}
	return out
}

// pool is what document 003's controller counts of a pool: out are endpoints that Envoy has
// taken out.
func (w *statusWriter) pool(ctx context.Context, s *gateway.Set, p *objects.Pool, pods []*pod, out []string) map[string]any {
	endpoints := w.u.endpointsOf(s, p, pods).Endpoints
	pages := make([]metrics.Page, len(endpoints))
	well := make([]bool, len(endpoints))
	var asking sync.WaitGroup
	limit := make(chan struct{}, 16)
	for i, e := range endpoints {
		asking.Go(func() {
			limit <- struct{}{}
			pages[i], well[i] = w.ask(ctx, e)
			<-limit
		})
	}
	asking.Wait()
	available, told := 0, 0
	sums := map[string]float64{}
	for i, e := range endpoints {
		if !well[i] || slices.Contains(out, e.HostPort()) {
			continue
		}
		if available++; pages[i] == nil {
			continue
		}
		told++
		for name, family := range pages[i] {
			for k := range family.Samples {
				sums[name] += family.Samples[k].Value
			}
		}
	}
	key, now := p.Namespace+"/"+p.Name, time.Now()
	rate, last := 0.0, w.answered[key]
	if seconds := now.Sub(last.at).Seconds(); !last.at.IsZero() && seconds > 0 {
		rate = max(0, sums[answered]-last.n) / seconds // less where a pod has gone
	}
	w.answered[key] = count{sums[answered], now}
	status := map[string]any{"totalPods": len(endpoints), "availablePods": available, "unhealthyPods": len(endpoints) - available,
		"conditions": w.dated("InferencePool "+key, []gateway.Condition{ready(available, len(endpoints))})}
	if told > 0 {
		hits := 0.0
		if sums[queriedTokens] > 0 {
			hits = sums[cachedTokens] / sums[queriedTokens]
		}
		status["metrics"] = map[string]any{"averageQueueLength": rounded(sums[waitingRequests] / float64(told)), "averageGPUUtilization": rounded(sums[busyPercent] / float64(told)),
			"averageCacheHitRate": rounded(hits), "requestsPerSecond": rounded(rate)}
	}
	return status
}

// ready is document 003's condition of a pool.
func ready(available, total int) gateway.Condition {
	switch {
	case total == 0:
		return gateway.Condition{Type: "Ready", Status: "False", Reason: "NoPods", Message: "the pool has no pods"}
	case available < total:
		return gateway.Condition{Type: "Ready", Status: "False", Reason: "PodsNotReady", Message: fmt.Sprintf("%d of %d pods are ready", available, total)}
	}
	return gateway.Condition{Type: "Ready", Status: "True", Reason: "PodsReady", Message: "all pods are ready"}
}

func rounded(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// ask says whether an endpoint answers, and what it tells in its metrics; nil where that is
// nothing that can be read.
func (w *statusWriter) ask(ctx context.Context, e *picker.Endpoint) (metrics.Page, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.HostPort()+"/metrics", nil)
	if err != nil {
		return nil, false
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.u.log.Debug("a pod does not say how it is", slog.String("endpoint", e.HostPort()), slog.Any("error", err))
		return nil, false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, metrics.MaxPageBytes))
	if err != nil || resp.StatusCode >= 500 {
		return nil, false
	}
	page, err := metrics.Parse(text, func(name string) bool {
		return slices.Contains([]string{waitingRequests, busyPercent, queriedTokens, cachedTokens, answered}, name)
	})
	if err != nil {
		return nil, true // it answers something else
	}
	return page, true
}
