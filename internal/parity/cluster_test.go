package parity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/machine"
)

// cluster holds the objects of a run, as the API server did.
type cluster struct {
	names []string
	text  map[string]map[string]any
	ages  objects.Ages
}

// create adds an object. Like the following methods, it changes nothing if it returns an error.
func (c *cluster) create(text string) error {
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	key := fmt.Sprint(o["kind"], "/", metaOf(o)["name"])
	if c.text[key] != nil {
		return errors.New("there is one of this name")
	}
	c.names = append(c.names, key)
	return c.set(key, o)
}

// patch applies a JSON merge patch.
func (c *cluster) patch(p *KubePatch) error {
	key, fresh := p.Kind+"/"+p.Name, map[string]any{}
	if c.text[key] == nil {
		return errNone
	}
	merge(fresh, c.text[key])
	merge(fresh, p.Patch)
	if err := c.set(key, fresh); err != nil {
		return err
	}
	if meta := metaOf(fresh); meta["deletionTimestamp"] != nil && !finalized(meta) {
		c.remove(key)
	}
	return nil
}

// delete removes an object. An object with finalizers is only marked as deleted.
func (c *cluster) delete(p *KubePatch) error {
	key := p.Kind + "/" + p.Name
	if c.text[key] == nil {
		return errNone
	}
	if meta := metaOf(c.text[key]); finalized(meta) {
		meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	} else {
		c.remove(key)
	}
	return nil
}

var errNone = errors.New("there is none of this name")

func metaOf(o map[string]any) map[string]any {
	meta, _ := o["metadata"].(map[string]any)
	return meta
}

// finalized reports whether an object has finalizers, which delay its removal.
func finalized(meta map[string]any) bool {
	list, _ := meta["finalizers"].([]any)
	return len(list) > 0
}

func (c *cluster) set(key string, o map[string]any) error {
	before := c.text[key]
	c.text[key] = o
	_, err := c.read()
	if err != nil {
		if c.text[key] = before; before == nil {
			c.remove(key)
		}
	}
	return err
}

func (c *cluster) remove(key string) {
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == key })
	delete(c.text, key)
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for k, v := range patch {
		sub, isMap := v.(map[string]any)
		old, wasMap := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && wasMap:
			fresh := maps.Clone(old)
			merge(fresh, sub)
			into[k] = fresh
		case isMap:
			fresh := map[string]any{}
			merge(fresh, sub)
			into[k] = fresh
		default:
			into[k] = v
		}
	}
}

func (c *cluster) read() (*objects.Set, error) {
	s := &objects.Set{}
	for _, name := range c.names {
		text, err := yaml.Marshal(c.text[name])
		if err == nil {
			err = s.Add(name, text)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(s.Warnings) > 0 {
		return nil, fmt.Errorf("warnings about what the API server took: %v", s.Warnings)
	}
	c.ages.Settle(s)
	return s, nil
}

// elsewhere returns the reason why a run is not played here, or "".
func (l *Line) elsewhere() string {
	if l.ID == "endpoint-selector-no-pod-name" {
		return "a missing environment variable is the command's to find"
	}
	if strings.HasPrefix(l.ID, "precedence-same-second") {
		return "which of two objects of one second wins is arbitrary"
	}
	return ""
}

// startCluster creates the run's objects.
func (pl *player) startCluster() error {
	pl.cluster, pl.gone, pl.answered = &cluster{text: map[string]map[string]any{}}, map[string]bool{}, map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(pl.line.Objects))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() { // the order of the object's keys counts
		if _, err := d.Token(); err != nil {
			return err
		}
		var text string
		if err := d.Decode(&text); err != nil {
			return err
		}
		if err := pl.cluster.create(text); err != nil {
			return err
		}
	}
	return pl.applyCluster()
}

func (pl *player) applyCluster() error {
	set, err := pl.cluster.read()
	if err != nil {
		return err
	}
	var s objects.Selection
	if text := pl.line.flag("--endpoint-selector"); text != "" {
		selector, err := picker.ParseSelector(text)
		if err != nil {
			return err
		}
		var ports []int
		for text := range strings.SplitSeq(pl.line.flag("--endpoint-target-ports"), ",") {
			port, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			ports = append(ports, port)
		}
		s.Found, s.Endpoints = true, set.Endpoints("default", selector, ports)
	} else {
		name := pl.line.PoolName
		if name == "" {
			name = "sim-pool"
		}
		s = set.Select("default", name)
	}
	pl.input(core.Objects{Selection: s})
	if p, shown := pl.driver.(pages); shown {
		p.found(s.Found)
	}
	return nil
}

// pages are the picker's HTTP and health endpoints, for drivers that have them.
type pages interface {
	// metrics returns the metrics page's series that match a pattern, and the types of all families. Whole includes
	// series that recordings of whole pages left out.
	metrics(pattern string, whole bool) (values map[string]float64, types map[string]string)
	get(path string) (status int, body []byte)
	// health returns the answer of the health service on a port ("grpc_port", "health_port") for a service. Before,
	// found reports whether there is a pool.
	health(port, service string) string
	found(bool)
}

// clusterStep plays the steps that only such runs have, or that have another form there. It reports whether it played
// the step.
func (pl *player) clusterStep(s *Step) bool {
	if pl.line.ceilings() && pl.ceilingStep(s) {
		return true
	}
	w, pages := pl.driver.(pages)
	switch {
	case s.KubeCreate != "" || s.KubePatch != nil || s.KubeDelete != nil:
		var err error
		switch {
		case s.KubeCreate != "":
			err = pl.cluster.create(s.KubeCreate)
		case s.KubePatch != nil:
			err = pl.cluster.patch(s.KubePatch)
		default:
			err = pl.cluster.delete(s.KubeDelete)
		}
		if refused := s.Refused != nil || s.Code >= 400; refused != (err != nil) {
			pl.fault("objects", "refused", fmt.Sprint(string(s.Refused), s.Code), fmt.Sprint(err))
		}
		if err := pl.applyCluster(); err != nil {
			pl.fault("objects", "error", "", err.Error())
		}
		pl.changed = pl.now
		pl.pass(10 * machine.Millisecond)
	case s.Probes != "":
		pl.probe(s)
	case s.Burst != nil:
		pl.burst(s)
	case s.Health != "":
		if pages {
			pl.compareHealth(s, w)
		}
	case s.HTTPGet != "":
		if pages {
			pl.comparePage(s, w)
		}
	case s.EPPMetrics != nil:
		if pages {
			pl.compareMetrics(s, w)
		}
	case s.DistinctSecond > 0:
		// The number of seconds in which the rewrites were created determines the meaning of rewrites of the same
		// second.
	case s.Partial != "":
		if x := pl.open[s.Partial]; x != nil && !refused(x.got) {
			pl.begin(x, "text/event-stream")
			pl.respond(x, nil, []string{"data: {}\n\n"}, false)
		}
		pl.pass(150 * machine.Millisecond)
	case s.OnHeld != "":
		pl.onHeld(s)
	case s.AfterOne != "":
		pl.pass(600 * machine.Millisecond)
		for _, e := range s.Evicted {
			pl.gone[e.ID] = true
			if x := pl.open[e.ID]; x != nil {
				pl.sameRefusal(e.ID, &e.Observed, x.evicted)
			}
		}
		if got := slices.Contains(pl.order, s.AfterOne); got != s.AnsweredIt {
			pl.fault(s.AfterOne, "answered", fmt.Sprint(s.AnsweredIt), fmt.Sprint(got))
		}
		for id, x := range pl.open {
			if (x.evicted != nil) != pl.gone[id] {
				pl.fault(s.AfterOne, "evicted "+id, fmt.Sprint(pl.gone[id]), fmt.Sprint(x.evicted))
			}
		}
	case s.Cancels == "all held":
		for _, id := range slices.Sorted(maps.Keys(pl.open)) {
			if heldFirst.MatchString(id) {
				pl.release(pl.open[id])
			}
		}
		pl.pass(200 * machine.Millisecond)
	case s.SleepS > 0 && s.Answered != nil:
		pl.pass(machine.Time(s.SleepS * float64(machine.Second)))
		for _, id := range s.Answered {
			if !slices.Contains(pl.order, id) {
				pl.fault(id, "answered", "true", "false")
			}
		}
	case s.Answered != nil && s.BlockedThen == nil:
		pl.pass(100 * machine.Millisecond)
		for _, id := range s.Answered {
			for n := 0; n < 40 && s.Seconds != nil && !slices.Contains(pl.order, id); n++ {
				pl.pass(50 * machine.Millisecond)
			}
		}
		got := slices.DeleteFunc(slices.Clone(pl.order), func(id string) bool { return id == "r0" })
		for _, id := range s.Answered {
			pl.answered[id] = true
		}
		if !slices.Equal(s.Answered, got) && !sameWhenTimedOut(s, got) {
			pl.fault("answered", "order", fmt.Sprint(s.Answered), fmt.Sprint(got))
		}
		pl.compareSeconds(s)
	default:
		return false
	}
	return true
}

// expire waits until requests past their TTL are answered, because the recorder was slower than the player.
func (pl *player) expire() {
	for _, id := range slices.Sorted(maps.Keys(pl.open)) {
		x := pl.open[id]
		if rec := x.recorded.Messages; pl.cluster == nil || x.done || len(rec) == 0 || rec[0].Body == nil ||
			!strings.Contains(*rec[0].Body, "TTL expired") {
			continue
		}
		for n := 0; n < 1000 && !x.done; n++ {
			pl.pass(5 * machine.Millisecond)
		}
	}
}

// heldFirst matches the requests that fill the pool in eviction runs.
var heldFirst = regexp.MustCompile(`^[A-F]h\d`)

// sameWhenTimedOut compares answers that came together, whose order has no meaning.
func sameWhenTimedOut(s *Step, got []string) bool {
	want, got := slices.Clone(s.Answered), slices.Clone(got)
	sort.Strings(want)
	sort.Strings(got)
	return s.Seconds != nil && slices.Equal(want, got)
}

// probeObjectives are the objectives of the recorder's probes.
var probeObjectives = map[string]string{
	"start": "neg1", "raised-to-3": "neg1", "lowered-to-neg9": "neg1", "priority-removed": "neg1",
	"neg5-deleted": "neg5", "late-created": "late", "late-moved-to-other-pool": "late", "late-back": "late",
	"poolref-old-group": "group-x", "min-int": "small",
	"fail1": "neg1", "fail2": "neg1", "fail3": "neg1", "ok": "neg1",
}

// probe sends probes and compares them with the last run of equal answers.
func (pl *player) probe(s *Step) {
	pl.pass(300 * machine.Millisecond)
	headers := map[string]string{"content-type": "application/json"}
	if pl.line.Topic == "priority" {
		headers[picker.HeadersObjective[0]] = probeObjectives[s.Probes]
	}
	body := `{"model": "m1", "messages": [{"role": "user", "content": "x"}]}`
	x := &exchange{id: "probe"}
	pl.send(x, &Request{ID: "probe", Method: "POST", Path: "/v1/chat/completions", Headers: headers, Body: &body})
	got := "candidates "
	if m := x.refusal(); m != nil {
		got = fmt.Sprintf("%d %s", m.Status, *m.Body)
	} else {
		got += strings.Join(slices.Sorted(maps.Keys(x.scores())), " ")
	}
	pl.finish("probe", Response{Kind: "json", Usage: []int{3, 4}}, nil)
	if want := s.Runs[len(s.Runs)-1].Answer; got != want {
		pl.fault(s.Probes, "probe", want, got)
	}
}

// burst sends many equal requests one after the other, and compares how often each answer and each model occurred.
func (pl *player) burst(s *Step) {
	counts, models := map[string]int{}, map[string]int{}
	for i := range s.Burst.N {
		id := fmt.Sprintf("burst-%d-%d", pl.now, i)
		headers := map[string]string{"content-type": "application/json", "x-request-id": id}
		for k, v := range s.Burst.Headers {
			headers[k] = v
		}
		x := &exchange{id: id}
		pl.send(x, &Request{ID: id, Method: "POST", Path: "/v1/chat/completions", Headers: headers,
			Body: &s.Burst.Body})
		if m := x.refusal(); m != nil {
			status := fmt.Sprint(m.Status)
			counts[status]++
			if want, sampled := s.Rejections[status]; sampled && counts[status] == 1 {
				pl.sameRefusal("burst "+status, &want, m)
			}
		} else {
			counts[x.destination()]++
			var forwarded struct{ Model string }
			if json.Unmarshal(x.forwarded(), &forwarded) == nil {
				models[forwarded.Model]++
			}
		}
		pl.finish(id, Response{Kind: "json", Usage: []int{3, 4}}, nil)
	}
	pl.share("counts", s.Burst.N, s.Counts, counts)
	if s.BodyModels != nil {
		pl.share("models", s.Burst.N, s.BodyModels, models)
	}
}

// ofThePool matches figures that do not count requests. In a run with bursts, only these are compared.
var ofThePool = regexp.MustCompile(`_(ready|per|average|std_dev)_`)

// bursts reports whether the run has requests that are not played one by one, so that counters differ.
func (l *Line) bursts() bool {
	return slices.ContainsFunc(l.Steps, func(s Step) bool { return s.Burst != nil || s.Probes != "" })
}

// everyMetric is the pattern of recordings without a pattern.
const everyMetric = ""

// notCompared matches timings; sizes of bodies, which are sent as they came; the expected release of evictions and
// the index's size, which depend on the moment; and the time between pieces, which the player sends at once.
var notCompared = regexp.MustCompile(
	`duration_seconds_sum|size_bytes_sum|request_sizes_sum|pending_reclaim|prefix_indexer_size|streaming_itl_seconds`)

// notObserved matches families that never have a sample in the player's picker, because they describe the process or
// because the player does everything at one moment.
var notObserved = regexp.MustCompile(`_info$|dispatch_cycle_duration|streaming_itl_seconds`)

// compareMetrics compares the picker's own metrics.
func (pl *player) compareMetrics(s *Step, w pages) {
	var want struct {
		Pattern string
		Only    bool                // the recording has no other values of the page
		Values  map[string]*float64 // nil: the series does not exist
		Types   map[string]string
	}
	if err := json.Unmarshal(s.EPPMetrics, &want); err != nil {
		pl.fault("metrics", "step", "", err.Error())
		return
	}
	if want.Pattern == "" {
		want.Pattern = everyMetric
	}
	got, types := w.metrics(want.Pattern, want.Only)
	bursts := pl.line.bursts()
	for _, family := range slices.Sorted(maps.Keys(want.Types)) {
		if types[family] != want.Types[family] && !notObserved.MatchString(family) {
			pl.fault("metrics", family+" type", want.Types[family], types[family])
		}
	}
	series := slices.Collect(maps.Keys(want.Values))
	if !want.Only {
		series = slices.AppendSeq(series, maps.Keys(got))
	}
	slices.Sort(series)
	for _, series := range slices.Compact(series) {
		w := want.Values[series]
		g, ok := got[series]
		if notCompared.MatchString(series) || bursts && !ofThePool.MatchString(series) ||
			w == nil && g == 0 && strings.HasSuffix(series, "_count") { // exists from its first observation on
			continue
		}
		if ok != (w != nil) || ok && math.Abs(*w-g) > tolerance && !countsTime.MatchString(series) {
			pl.fault("metrics", series, valueOf(w), valueOf(&g))
		}
	}
}

func valueOf(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}

// countsTime matches counts of repeated events. Only their existence is compared.
var countsTime = regexp.MustCompile(`dispatch_cycle_duration|datalayer_poll_errors`)

var timestamps = regexp.MustCompile(`"timestamp":"[^"]*"`)

// comparePage compares a debug page. The order of lists has no meaning.
func (pl *player) comparePage(s *Step, w pages) {
	if strings.HasPrefix(s.HTTPGet, "/debug/pprof") {
		return // the page describes the process, not the picker
	}
	status, body := w.get(s.HTTPGet)
	if want := string(s.Status); want != fmt.Sprint(status) {
		pl.fault(s.HTTPGet, "status", want, fmt.Sprint(status))
	}
	var text string
	if json.Unmarshal(s.Body, &text) == nil { // only the beginning of a page is text
		var tight bytes.Buffer
		if json.Compact(&tight, body) == nil {
			body = tight.Bytes()
		}
		if got := timestamps.ReplaceAllString(string(body), `"timestamp":"<time>"`); !strings.HasPrefix(got, text) {
			pl.fault(s.HTTPGet, "body", text, got[:min(len(got), len(text))])
		}
		return
	}
	var want, got struct{ Plugins map[string]any }
	if err := errors.Join(json.Unmarshal(s.Body, &want), json.Unmarshal(body, &got)); err != nil {
		pl.fault(s.HTTPGet, "body", "", err.Error())
		return
	}
	sorted := cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })
	for _, list := range []map[string]any{want.Plugins, got.Plugins} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			plugin, _ := list[name].(map[string]any)
			if state, ok := plugin["state"].(map[string]any); ok {
				delete(state, "fairnessIndex") // depends on how long the requests of the recording waited
				delete(state, "totalPrograms") // here it includes programs that wait for the first time
			}
		}
	}
	for _, list := range []map[string]any{want.Plugins, got.Plugins} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if d := cmp.Diff(want.Plugins[name], got.Plugins[name], sorted); d != "" {
				pl.fault(s.HTTPGet, name, fmt.Sprint(want.Plugins[name]), fmt.Sprint(got.Plugins[name]))
			}
		}
	}
}

// share compares two counts of n draws.
func (pl *player) share(what string, n int, want, got map[string]int) {
	for key := range got {
		if want[key] == 0 && got[key] > 4 {
			pl.fault("burst", what+" "+key, "0", fmt.Sprint(got[key]))
		}
	}
	for key, w := range want {
		p := float64(w+got[key]) / float64(2*n)
		if d := math.Abs(float64(w - got[key])); d > 4.5*math.Sqrt(2*float64(n)*p*(1-p))+2 {
			pl.fault("burst", what+" "+key, fmt.Sprint(w), fmt.Sprint(got[key]))
		}
	}
}

// onHeld compares what a dispatched stream received afterwards.
func (pl *player) onHeld(s *Step) {
	var heard []Message
	_ = json.Unmarshal(s.Observed, &heard)
	x := pl.open[s.OnHeld]
	if x == nil {
		pl.fault(s.OnHeld, "held", "open", "closed")
		return
	}
	if m := first(heard, "response_headers"); m != nil {
		pl.response(x, []Message{*m}, x.begun)
	}
	m := first(heard, "immediate_response")
	if m == nil {
		if x.evicted != nil && !pl.gone[s.OnHeld] {
			pl.fault(s.OnHeld, "evicted", "false", "true")
		}
		return
	}
	pl.gone[s.OnHeld] = true
	pl.sameRefusal(s.OnHeld, m, x.evicted)
	if ended := first(heard, "stream_end") != nil; ended && !x.over {
		pl.fault(s.OnHeld, "stream", "ended", "open")
	}
}

// compareHealth compares the health services' answers. A service that is not registered is unknown to gRPC itself.
func (pl *player) compareHealth(s *Step, w pages) {
	var want map[string]string
	_ = json.Unmarshal(s.Status, &want)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		port, service, _ := strings.Cut(name, ":")
		if got := w.health(port, service); got != want[name] {
			pl.fault("health "+s.Health, name, want[name], got)
		}
	}
}
