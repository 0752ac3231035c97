package up

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

const (
	// statusPeriod is how often the writer asks the pods for their state. statusPatience limits the time for an answer.
	statusPeriod   = time.Second
	statusPatience = 2 * time.Second
	// statusAtOnce limits the concurrent requests to pods.
	statusAtOnce = 16
)

// statusWriter keeps the status of all objects in a file.
type statusWriter struct {
	u    *Up
	path string
	// since holds the time of each condition's last transition.
	since   map[string]transition
	pools   PoolWatches
	written []byte
}

type transition struct {
	status string
	at     time.Time
}

// WriteStatus keeps the status of every object in a file, in the form that a controller writes into the objects:
// conditions, parents and, for document 003's InferencePools, the counts of their pods. It asks the pods once a second
// until ctx ends. It returns an error if it cannot write the file.
func (u *Up) WriteStatus(ctx context.Context, path string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	w := &statusWriter{u: u, path: path, since: map[string]transition{}, pools: PoolWatches{Log: u.Log,
		Origin: u.Origin,
		Client: &http.Client{Transport: transport, Timeout: statusPatience, CheckRedirect: serve.Stay}}}
	for {
		if err := w.write(ctx); err != nil || !pause.For(ctx, statusPeriod) {
			return err
		}
	}
}

// write replaces the file if its content has changed. A reader sees either the old file or the new one, each complete.
func (w *statusWriter) write(ctx context.Context) error {
	w.u.applying.Lock()
	s, program, pods, out := w.u.applied.Objects, w.u.applied.Program, sorted(w.u.pods), maps.Clone(w.u.ejected)
	scaled := w.u.scaledWorkloads()
	w.u.applying.Unlock()
	var all []map[string]any
	for _, x := range program.Status {
		status := StatusFields(&x, "", w.dated)
		if x.Kind == "InferencePool" {
			if p := s.Pool(x.Namespace, x.Name); p != nil && p.KServe != nil {
				maps.Copy(status, w.pool(ctx, s, p, pods, out["pool/"+x.Namespace+"/"+x.Name]))
			}
		}
		metadata := map[string]any{"name": x.Name}
		if x.Namespace != "" {
			metadata["namespace"] = x.Namespace
		}
		all = append(all,
			map[string]any{"apiVersion": version(s, &x), "kind": x.Kind, "metadata": metadata, "status": status})
	}
	for i := range s.Models {
		all = append(all, w.model(&s.Models[i], pods))
	}
	for i := range scaled {
		all = append(all, scaled[i].status()...)
	}
	var text []byte
	for _, x := range all {
		one, err := yaml.Marshal(x)
		if err != nil {
			return err
		}
		text = append(append(text, "---\n"...), one...)
	}
	if ctx.Err() != nil || bytes.Equal(text, w.written) {
		return nil
	}
	w.written = text
	return files.Replace(w.path, text)
}

// model returns the status that document 003's controller writes into an InferenceModel: whether its workers have
// loaded the model, the model's known properties, and the number of workers. A pod counts from the time when its server
// listens.
func (w *statusWriter) model(m *gateway.Model, pods []*pod) map[string]any {
	state, all, with := "Pending", 0, map[string]int{}
	for _, p := range pods {
		if p.Workload.Kind != "InferenceModel" || p.Workload.Namespace != m.Namespace {
			continue
		}
		if suffix, ours := strings.CutPrefix(p.Workload.Name, m.Name); ours &&
			(suffix == "" || suffix == "-prefill" || suffix == "-decode") {
			if all++; !p.killed {
				state = "Loaded"
				with[suffix]++
			}
		}
	}
	workers := map[string]any{"totalPods": all}
	if m.Deployment.Type == "Disaggregated" {
		workers["prefillWorkersReady"], workers["decodeWorkersReady"] = with["-prefill"], with["-decode"]
	}
	status := map[string]any{"loadingState": state, "deploymentStatus": workers}
	since := w.sinceWhen("InferenceModel "+m.Namespace+"/"+m.Name, state)
	if state == "Loaded" {
		status["lastLoadTime"] = since
	}
	if info := ModelInfo(m.ID()); info != nil {
		status["modelInfo"] = info
	}
	return map[string]any{"apiVersion": objects.GroupKServe + "/v1alpha1", "kind": "InferenceModel",
		"metadata": map[string]any{"name": m.Name, "namespace": m.Namespace}, "status": status}
}

// ModelInfo returns document 003's modelInfo of a model, or nil for a model that is not in the catalogue.
func ModelInfo(id string) map[string]any {
	shape, err := modelshape.Named(id)
	if err != nil {
		return nil
	}
	return map[string]any{"architecture": shape.Architecture(),
		"numParameters": fmt.Sprintf("%.0fB", float64(shape.Params())/1e9),
		"numLayers":     int64(shape.Layers), "hiddenSize": int64(shape.Hidden), "vocabSize": int64(shape.Vocab)}
}

// version returns the apiVersion of an object's kind.
func version(s *gateway.Set, x *gateway.Status) string {
	switch x.Kind {
	case "InferencePool":
	case "BackendTrafficPolicy":
		return gateway.GroupEnvoy + "/v1alpha1"
	default:
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

// StatusFields returns the fields of an object's status. The conditions are those that dated returns for a place, and
// controller, unless it is "", is the controllerName of parents.
func StatusFields(x *gateway.Status, controller string,
	dated func(of string, list []gateway.Condition) []any) map[string]any {
	status, of := map[string]any{}, x.Kind+" "+x.Namespace+"/"+x.Name
	if len(x.Conditions) > 0 {
		status["conditions"] = dated(of, x.Conditions)
	}
	var listeners, parents, ancestors []any
	for _, l := range x.Listeners {
		kinds := []any{}
		for _, k := range l.Kinds {
			kinds = append(kinds, map[string]any{"group": gateway.Group, "kind": k})
		}
		listeners = append(listeners,
			map[string]any{"name": l.Name, "attachedRoutes": int64(l.Attached), "supportedKinds": kinds,
				"conditions": dated(of+" listener "+l.Name, l.Conditions)})
	}
	for _, p := range x.Parents {
		if kind, name, policy := strings.Cut(p.Target, " "); policy {
			ref := map[string]any{"kind": kind}
			ref["namespace"], ref["name"], _ = strings.Cut(name, "/")
			conditions := dated(of+" at "+p.Target, p.Conditions)
			ancestors = append(ancestors, map[string]any{"ancestorRef": ref, "conditions": conditions})
			continue
		}
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
			if p.Ref.Port != 0 {
				ref["port"] = int64(p.Ref.Port)
			}
		}
		parent := map[string]any{"parentRef": ref, "conditions": dated(fmt.Sprint(of, " at ", ref), p.Conditions)}
		if controller != "" {
			parent["controllerName"] = controller
		}
		parents = append(parents, parent)
	}
	for field, list := range map[string][]any{"listeners": listeners, "parents": parents, "ancestors": ancestors} {
		if len(list) > 0 {
			status[field] = list
		}
	}
	return status
}

// dated returns conditions with the times of their last transitions.
func (w *statusWriter) dated(of string, list []gateway.Condition) (out []any) {
	for _, c := range list {
		out = append(out, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": w.sinceWhen(of+" "+c.Type, c.Status)})
	}
	return out
}

// sinceWhen returns the time, as text, since which the thing with this key has had this status.
func (w *statusWriter) sinceWhen(key, status string) string {
	if t, there := w.since[key]; !there || t.status != status {
		w.since[key] = transition{status, time.Now()}
	}
	return w.since[key].at.UTC().Format(time.RFC3339)
}

// pool returns the status of one of document 003's pools. out are endpoints that Envoy has ejected.
func (w *statusWriter) pool(ctx context.Context, s *gateway.Set, p *objects.Pool, pods []*pod,
	out []string) map[string]any {
	var endpoints []string
	for _, e := range w.u.endpointsOf(s, p, pods).Endpoints {
		endpoints = append(endpoints, e.HostPort())
	}
	status, ready := w.pools.Status(ctx, p, endpoints, out)
	status["conditions"] = w.dated("InferencePool "+p.Namespace+"/"+p.Name, []gateway.Condition{ready})
	return status
}

// PoolWatches computes the status of document 003's pools from the metrics of their pods.
type PoolWatches struct {
	Client *http.Client
	Log    *slog.Logger
	// Origin is any time before the first call of Status.
	Origin time.Time

	watches map[string]*gateway.PoolWatch // by namespace and name
}

// Status asks a pool's pods for their metrics, and returns the pool's status without conditions, and the condition
// Ready. An endpoint is host:port, or "" for a pod that cannot be asked. out are the endpoints that the gateway has
// ejected.
func (x *PoolWatches) Status(ctx context.Context, p *objects.Pool, endpoints, out []string) (status map[string]any,
	ready gateway.Condition) {
	answers := make([]gateway.PodAnswer, len(endpoints))
	var asking sync.WaitGroup
	limit := make(chan struct{}, statusAtOnce)
	for i, at := range endpoints {
		if at == "" {
			continue
		}
		asking.Go(func() {
			limit <- struct{}{}
			var err error
			if answers[i], err = x.ask(ctx, at); err != nil {
				x.Log.Debug("a pod does not answer", slog.String("endpoint", at), slog.Any("error", err))
			}
			answers[i].Out = slices.Contains(out, at)
			<-limit
		})
	}
	asking.Wait()
	key := p.Namespace + "/" + p.Name
	if x.watches[key] == nil {
		if x.watches == nil {
			x.watches = map[string]*gateway.PoolWatch{}
		}
		x.watches[key] = &gateway.PoolWatch{}
	}
	found := x.watches[key].Asked(machine.FromDuration(time.Since(x.Origin)), answers)
	status = map[string]any{"totalPods": int64(found.Total), "availablePods": int64(found.Available),
		"unhealthyPods": int64(found.Total - found.Available)}
	if found.Metrics != nil {
		status["metrics"] = found.Metrics
	}
	return status, found.Ready
}

// ask scrapes the metrics of an endpoint.
func (x *PoolWatches) ask(ctx context.Context, endpoint string) (answer gateway.PodAnswer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/metrics", nil)
	if err != nil {
		return answer, err
	}
	resp, err := x.Client.Do(req)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, metrics.MaxPageBytes))
	if err != nil {
		return answer, err
	}
	answer.Code = resp.StatusCode
	if page, err := metrics.Parse(text, gateway.StatusMetric); err == nil { // otherwise it serves no metrics
		answer.Page = page
	}
	return answer, nil
}
