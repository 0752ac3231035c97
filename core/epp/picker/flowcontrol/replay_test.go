package flowcontrol_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TestRecordedFlowControl plays every recorded run that uses flow control, in
// virtual time, and expects what the real picker answered: who waits, who is
// refused with which words, in which order the others leave, who is evicted,
// and the counters.
func TestRecordedFlowControl(t *testing.T) {
	files := []string{"flow-control-order", "flow-control-saturation", "flow-control-capacity", "flow-control-ttl",
		"flow-control-empty-pool", "kubernetes-priority"}
	runs, requests := 0, 0
	for _, file := range files {
		for _, r := range readRecordings(t, file) {
			config, _, gate := r.config(t)
			if !gate {
				continue
			}
			if r.Errors != nil {
				expectRefusedConfig(t, r, config)
				continue
			}
			t.Run(file+"/"+r.ID, func(t *testing.T) {
				p := newReplay(t, r, config)
				for i, step := range r.Steps {
					p.at = fmt.Sprintf("step %d", i)
					p.step(step)
				}
				requests += len(p.names)
			})
			runs++
		}
	}
	t.Logf("%d runs, %d requests", runs, requests)
	if runs < 70 {
		t.Errorf("only %d runs were played", runs)
	}
}

// expectRefusedConfig checks the configurations with which the real picker did
// not start, as far as the reason lies here.
func expectRefusedConfig(t *testing.T, r recording, config Config) {
	t.Helper()
	if r.ID == "ttl-per-band" || r.ID == "holdback-no-flag" {
		return // an unknown field, a missing flag: the reader's
	}
	want := r.Errors[len(r.Errors)-1].Error
	if _, err := newDriver(config); err == nil || !strings.HasSuffix(want, err.Error()) {
		t.Errorf("%s: NewController said %v, the real picker %s", r.ID, err, want)
	}
}

type replay struct {
	t          *testing.T
	at         string
	c          *driver
	now        machine.Time
	objectives map[string]int
	loads      []Load
	worker     map[string]int // by name and by "ip:port"
	failing    map[int]bool

	ids      map[string]RequestID
	names    []string // by RequestID
	requests []*replayed
	order    []string // answered, in order
	from     int      // where the present state of a ceiling run begins in it
	crew     []string // who arrives in each state of a ceiling run, the lowest first
	soft     bool     // the run uses soft-reflective-ceiling-policy
	counted  map[string]int
}

type replayed struct {
	Arrive
	want     answer
	arrived  machine.Time
	answered machine.Time
	text     string
	endpoint int
	running  bool
	evicted  bool
	finish   bool // as soon as it is dispatched
}

func newReplay(t *testing.T, r recording, config Config) *replay {
	c, err := newDriver(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &replay{t: t, c: c, objectives: r.objectives(), worker: map[string]int{}, failing: map[int]bool{},
		ids: map[string]RequestID{}, counted: map[string]int{}}
	for i, e := range r.Endpoints {
		p.worker[e.Name], p.worker[e.Address+":"+e.Port] = i, i
	}
	p.soft = config.UsageLimit.Kind == SoftReflectiveCeiling
	p.crew = crew(r)
	hasPod := r.Objects == nil
	for key := range r.Objects {
		hasPod = hasPod || strings.HasPrefix(key, "Pod/")
	}
	if hasPod {
		p.setPool(len(r.Endpoints))
	}
	if r.Objects != nil {
		var priorities []int
		for _, v := range p.objectives {
			priorities = append(priorities, v)
		}
		slices.Sort(priorities)
		c.Input(0, Objectives{priorities})
	}
	p.play(machine.Second)
	return p
}

func (p *replay) setPool(n int) {
	p.loads = make([]Load, n)
	p.c.Input(p.now, Pool{p.loads})
}

// play lets time pass; pages are scraped every 50 ms.
func (p *replay) play(d machine.Time) {
	const scrape = 50 * machine.Millisecond
	for until := p.now + d; p.now < until; {
		p.run(min(until, (p.now/scrape+1)*scrape))
		if p.now%scrape == 0 {
			for i := range p.loads {
				if !p.failing[i] {
					p.loads[i].Scraped, p.loads[i].UpdatedAt = true, p.now
					p.c.Input(p.now, LoadChanged{i, p.loads[i]})
				}
			}
		}
	}
}

func (p *replay) run(until machine.Time) {
	p.c.Advance(p.now, p.effect)
	for at, ok := p.c.Next(); ok && at <= until; at, ok = p.c.Next() {
		p.now = at
		p.c.Advance(at, p.effect)
	}
	p.now = until
	p.c.Advance(until, p.effect)
}

func (p *replay) effect(e Effect) {
	if e.Kind != Decided && e.Kind != Evict {
		p.counted["confirmed"]++
		return
	}
	q := p.requests[e.ID]
	if e.Kind == Evict {
		p.counted[fmt.Sprintf("evicted for %d", e.ForPriority)]++
		r := e.Refusal()
		q.text, q.evicted = refusalText(r.Status, r.Error(), r.Reason), true
		p.end(q)
		return
	}
	p.counted[fmt.Sprintf("%v %d", e.Outcome, e.Priority)]++
	q.answered = e.At
	p.order = append(p.order, p.names[e.ID])
	if r := e.Refusal(); r != nil {
		q.text = refusalText(r.Status, r.Error(), r.Reason)
		return
	}
	q.text, q.running, q.endpoint = "dispatched", true, p.worker[q.want.endpoint]
	p.loads[q.endpoint].Requests++
	p.loads[q.endpoint].Tokens += q.Tokens
	p.c.Input(p.now, LoadChanged{q.endpoint, p.loads[q.endpoint]})
	p.c.Input(p.now, Placed{e.ID})
	if q.finish {
		p.end(q)
	}
}

// end finishes a running request with the recordings' usual usage.
func (p *replay) end(q *replayed) {
	if !q.running {
		return
	}
	q.running = false
	p.loads[q.endpoint].Requests--
	p.loads[q.endpoint].Tokens -= q.Tokens
	p.c.Input(p.now, LoadChanged{q.endpoint, p.loads[q.endpoint]})
	p.c.Input(p.now, Done{ID: q.ID, PromptTokens: 3, CompletionTokens: 4})
}

func (p *replay) arrive(name string, a Arrive, want answer) *replayed {
	a.ID = RequestID(len(p.requests))
	q := &replayed{Arrive: a, want: want, arrived: p.now}
	p.requests, p.names, p.ids[name] = append(p.requests, q), append(p.names, name), a.ID
	p.c.Input(p.now, a)
	return q
}

func (p *replay) request(name string) *replayed {
	id, ok := p.ids[name]
	if !ok {
		p.t.Fatalf("%s: no request %s", p.at, name)
	}
	return p.requests[id]
}

func (p *replay) step(step map[string]json.RawMessage) {
	if r, ok := field[recordedRequest](step, "request"); ok {
		p.requestStep(r, step)
	}
	if m, ok := field[map[string]struct {
		Waiting int
		KV      float64
	}](step, "metrics"); ok {
		for name, v := range m {
			l := &p.loads[p.worker[name]]
			l.Waiting, l.KVUsage = v.Waiting, machine.Float(v.KV)
		}
		p.play(300 * machine.Millisecond)
	}
	if names, ok := field[[]string](step, "scrape_fail"); ok {
		for _, n := range names {
			p.failing[p.worker[n]] = true
		}
		p.play(400 * machine.Millisecond)
	}
	if _, ok := step["scrape_ok"]; ok {
		clear(p.failing)
		p.play(400 * machine.Millisecond)
	}
	if list, ok := field[[]any](step, "endpoints_file_now"); ok {
		p.setPool(len(list))
		p.play(50 * machine.Millisecond)
	}
	if _, ok := step["kube_create"]; ok { // in the runs that are played here: the first pod
		p.setPool(1)
	}
	if name, ok := field[string](step, "finish"); ok {
		p.end(p.request(name))
		p.play(20 * machine.Millisecond)
	}
	if name, ok := field[string](step, "client_cancels"); ok {
		if name == "all held" {
			held := regexp.MustCompile(`^[A-F]h\d`)
			for i, q := range p.requests {
				if held.MatchString(p.names[i]) {
					p.end(q)
				}
			}
		} else {
			p.c.Input(p.now, Gone{p.request(name).ID})
		}
		p.play(20 * machine.Millisecond)
	}
	if s, ok := field[float64](step, "saturation"); ok {
		p.saturationStep(s, step)
		return
	}
	if s, ok := field[float64](step, "sleep_s"); ok {
		p.play(machine.Time(s * float64(machine.Second)))
	}
	p.expectations(step)
}

func (p *replay) requestStep(r recordedRequest, step map[string]json.RawMessage) {
	hold, _ := field[bool](step, "hold")
	want := recordedAnswer(step["observed"])
	q := p.arrive(r.ID, r.arrival(0, p.objectives), want)
	q.finish = !hold
	blocked, ok := field[*float64](step, "blocked_after_s")
	if !ok {
		p.play(15 * machine.Millisecond)
		return
	}
	if blocked == nil {
		p.play(20 * machine.Millisecond)
		if q.text != want.text {
			p.t.Errorf("%s: %s got %q at once, want %q", p.at, r.ID, q.text, want.text)
		}
		return
	}
	p.play(machine.Time(*blocked * float64(machine.Second)))
	if q.text != "" {
		p.t.Errorf("%s: %s got %q, but should wait", p.at, r.ID, q.text)
	}
}

func (p *replay) expectations(step map[string]json.RawMessage) {
	if wait, ok := field[map[string]float64](step, "seconds_until_answer"); ok {
		p.play(machine.Time(2 * float64(machine.Second)))
		for name, want := range wait {
			q := p.request(name)
			if got := (q.answered - q.arrived).Seconds(); q.text == "" || math.Abs(got-want) > 0.1 {
				p.t.Errorf("%s: %s was answered (%q) after %.3f s, want %.3f", p.at, name, q.text, got, want)
			}
		}
	}
	for _, key := range []string{"answered_so_far", "dispatched_before_release"} {
		if want, ok := field[[]string](step, key); ok {
			p.answeredSoFar(want)
		}
	}
	if want, ok := field[[]string](step, "blocked_before_release"); ok {
		var got []string
		for i, q := range p.requests {
			if q.text == "" {
				got = append(got, p.names[i])
			}
		}
		p.equal("waiting", got, want)
	}
	if name, ok := field[string](step, "received_on_held"); ok {
		if want := recordedAnswer(evictionOnly(step["observed"])).text; want != "" {
			if q := p.request(name); q.text != want {
				p.t.Errorf("%s: held %s got %q, want %q", p.at, name, q.text, want)
			}
		} else if q := p.request(name); q.evicted && !p.known(name) {
			p.t.Errorf("%s: held %s was evicted", p.at, name)
		}
		if recordedAnswer(evictionOnly(step["observed"])).text != "" {
			p.counted["known "+name] = 1
		}
	}
	if name, ok := field[string](step, "after_arrival"); ok {
		answered, _ := field[bool](step, "answered")
		if got := p.request(name).text == "dispatched"; got != answered {
			p.t.Errorf("%s: %s dispatched is %v", p.at, name, got)
		}
		evicted, _ := field[[]struct{ ID string }](step, "evicted")
		for _, e := range evicted {
			p.counted["known "+e.ID] = 1
		}
		for i, q := range p.requests {
			if q.evicted != p.known(p.names[i]) {
				p.t.Errorf("%s: evicted %s is %v", p.at, p.names[i], q.evicted)
			}
		}
	}
	if priority, ok := field[int](step, "after_priority"); ok {
		want, _ := field[map[string]int](step, "dispatched")
		p.crowd(priority, want)
	}
	if groups, ok := field[[]any](step, "dispatch_order"); ok {
		p.dispatchOrder(groups)
	}
	if m, ok := field[struct{ Values map[string]float64 }](step, "epp_metrics"); ok {
		p.metrics(m.Values)
	}
}

// known reports whether an eviction has been recorded before.
func (p *replay) known(name string) bool { return p.counted["known "+name] > 0 }

// evictionOnly drops what a held stream received before its eviction.
func evictionOnly(raw json.RawMessage) json.RawMessage {
	var list []map[string]any
	if json.Unmarshal(raw, &list) != nil {
		return raw
	}
	list = slices.DeleteFunc(list, func(m map[string]any) bool { return m["type"] != "immediate_response" })
	raw, _ = json.Marshal(list)
	return raw
}

// answeredSoFar compares who has an answer, among those that are not known to
// be held since before.
func (p *replay) answeredSoFar(want []string) {
	p.t.Helper()
	for _, name := range want {
		if p.request(name).text == "" {
			p.t.Errorf("%s: %s has no answer", p.at, name)
		}
	}
	for i, q := range p.requests {
		if name := p.names[i]; q.text == "" && slices.Contains(want, name) {
			p.t.Errorf("%s: %s has no answer yet", p.at, name)
		}
	}
	// Those of the same letter (or without) that are not listed must wait.
	for i, q := range p.requests {
		name := p.names[i]
		if q.running && !slices.Contains(want, name) && len(want) > 0 && !strings.Contains(name, "h") && name != "r0" &&
			p.now-q.arrived < 2*machine.Second {
			p.t.Errorf("%s: %s has an answer", p.at, name)
		}
	}
}

// dispatchOrder finishes what runs, one by one, and compares the order in
// which the others follow. Requests that the recording says expired are given
// the time to.
func (p *replay) dispatchOrder(groups []any) {
	p.t.Helper()
	for p.finishOne() {
	}
	wanted := map[string]bool{}
	var want [][]string
	for _, g := range groups {
		list, _ := g.([]any)
		if list == nil {
			list = []any{nil, g}
		}
		var names []string
		for _, n := range list[1:] {
			if name := n.(string); p.request(name).want.text == "dispatched" || p.request(name).want.text == "" {
				names = append(names, name)
				wanted[name] = true
			}
		}
		slices.Sort(names)
		if names != nil {
			want = append(want, names)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(p.order[p.from:]), func(n string) bool { return !wanted[n] })
	if p.from > 0 { // answers a millisecond apart overtake each other
		all := []string{}
		for _, g := range want {
			all = append(all, g...)
		}
		slices.Sort(all)
		want = [][]string{all}
	}
	var got [][]string
	for _, g := range want {
		n := min(len(g), len(rest))
		part := slices.Clone(rest[:n])
		slices.Sort(part)
		got, rest = append(got, part), rest[n:]
	}
	p.equal("order of dispatch", got, want)
	for i, q := range p.requests {
		if q.want.text != "" && q.text != q.want.text && !q.evicted {
			p.t.Errorf("%s: %s got %q, want %q", p.at, p.names[i], q.text, q.want.text)
		}
	}
}

func (p *replay) finishOne() bool {
	for _, q := range p.requests {
		if q.text == "" && strings.Contains(q.want.text, "TTL expired") {
			for q.text == "" {
				p.play(machine.Millisecond)
			}
		}
	}
	for _, name := range p.order {
		if q := p.request(name); q.running {
			p.end(q)
			p.play(45 * machine.Millisecond)
			return true
		}
	}
	return false
}

// saturationStep is one state of the ceiling runs, whose request records were
// dropped: one request (or six) per objective, the lowest first.
func (p *replay) saturationStep(s float64, step map[string]json.RawMessage) {
	p.t.Helper()
	if answered, ok := field[[]string](step, "answered_so_far"); ok {
		p.from = len(p.order)
		for _, name := range p.crew {
			base := strings.TrimSuffix(name, "-0")
			q := p.arrive(name, Arrive{FairnessID: "default-flow", Priority: p.objectives[base], Bytes: 63}, answer{})
			q.finish = true
			p.play(15 * machine.Millisecond)
		}
		sleep, _ := field[float64](step, "sleep_s")
		p.play(machine.Time(sleep * float64(machine.Second)))
		got := slices.Clone(p.order[p.from:])
		if s > 0.6 && p.soft { // its rhythm has no recorded beginning
			slices.Sort(got)
			slices.Sort(answered)
		}
		p.equal(fmt.Sprintf("dispatched at saturation %g", s), got, answered)
		return
	}
	rows, _ := field[[][2]any](step, "order_ms")
	p.drip(s, rows)
}

// crew returns the names in a ceiling run.
func crew(r recording) (names []string) {
	for _, step := range r.Steps {
		list, _ := field[[]string](step, "answered_so_far")
		rest, _ := field[[]any](step, "dispatch_order")
		for _, g := range rest {
			group, _ := g.([]any)
			if group == nil {
				group = []any{nil, g}
			}
			for _, name := range group[1:] {
				list = append(list, name.(string))
			}
		}
		for _, name := range list {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Compare(priorityOf(strings.TrimSuffix(a, "-0")), priorityOf(strings.TrimSuffix(b, "-0")))
	})
	return names
}

func priorityOf(objective string) int {
	n, _ := strconv.Atoi(strings.NewReplacer("neg", "-", "p", "").Replace(objective))
	return n
}

// drip plays one state of the reflective-load runs. Requests that have waited at full saturation leave at another one;
// the test compares the pace.
func (p *replay) drip(s float64, rows [][2]any) {
	p.t.Helper()
	loads := slices.Clone(p.loads)
	p.loads[0].KVUsage = 0.8
	p.play(300 * machine.Millisecond)
	names := []string{"p0"}
	if len(p.objectives) == 2 {
		names = append(names, "p10")
	}
	count := map[string]int{}
	for _, row := range rows {
		base, _, _ := strings.Cut(row[0].(string), "-")
		count[base]++
	}
	var all []*replayed
	first := len(p.order)
	for _, name := range names {
		for i := range 6 {
			q := p.arrive(fmt.Sprintf("%s-%d", name, i),
				Arrive{FairnessID: "default-flow", Priority: p.objectives[name], Bytes: 63}, answer{})
			q.finish = true
			all = append(all, q)
			p.play(5 * machine.Millisecond)
		}
	}
	if len(p.order) != first {
		p.t.Errorf("%s: %v left at saturation 1", p.at, p.order[first:])
	}
	p.loads = loads
	p.play(8 * machine.Second)
	var recorded []float64
	for _, row := range rows {
		if strings.HasPrefix(row[0].(string), "p0") {
			recorded = append(recorded, row[1].(float64))
		}
	}
	gap := (recorded[len(recorded)-1] - recorded[0]) / float64(len(recorded)-1)
	mine := float64(all[5].answered-all[0].answered) / 5 / float64(machine.Millisecond)
	// The real cycle takes 1.07 ms, and several may follow at once when the
	// process was held up.
	if math.Abs(gap/1.07-mine) > 0.15*mine+0.8 {
		p.t.Errorf("%s: at saturation %g the lower band leaves every %.1f ms, recorded %.1f", p.at, s, mine, gap)
	}
	for _, name := range p.order[first:][:len(p.order[first:])-6] {
		if !strings.HasPrefix(name, "p10") {
			p.t.Errorf("%s: %s left before p10", p.at, name)
		}
	}
}

// crowd is one priority of the runs in which requests of each priority arrive
// until they wait.
func (p *replay) crowd(priority int, want map[string]int) {
	p.t.Helper()
	n := 12
	if p.counted["six"] == 1 || len(want) == 1 && strings.Contains(p.t.Name(), "evict-with") {
		p.counted["six"], n = 1, 6
	}
	for name, value := range p.objectives {
		if value != priority {
			continue
		}
		for i := range n {
			p.arrive(fmt.Sprintf("%s-%d", name, i), Arrive{FairnessID: "default-flow", Priority: priority, Bytes: 63},
				answer{})
			p.play(20 * machine.Millisecond)
		}
	}
	p.play(500 * machine.Millisecond)
	got := map[string]int{}
	for _, name := range p.order {
		base, _, _ := strings.Cut(name, "-")
		got[base]++
	}
	p.equal("dispatched", got, want)
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// metrics compares the counters and gauges that the machine's effects and
// snapshot are meant to feed.
func (p *replay) metrics(values map[string]float64) {
	p.t.Helper()
	s := p.c.Snapshot(p.now)
	for key, want := range values {
		labels := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(key, -1) {
			labels[m[1]] = m[2]
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "llm_d_epp_"), "{")
		var got float64
		switch name {
		case "flow_control_requests_total":
			got = float64(p.counted[labels["outcome"]+" "+labels["priority"]])
		case "flow_control_revocations_issued_total":
			got = float64(p.counted["evicted for "+labels["priority"]])
		case "flow_control_revocations_total":
			got = float64(p.counted["confirmed"])
		case "flow_control_pool_saturation":
			got = s.Saturation
		case "flow_control_reclaim_target":
			got = s.ReclaimTarget
		case "flow_control_pending_reclaim":
			got = s.PendingReclaim
		case "flow_control_queue_size":
			for _, b := range s.Bands {
				for _, f := range b.Flows {
					if strconv.Itoa(b.Priority) == labels["priority"] && f.FairnessID == labels["fairness_id"] {
						got = float64(f.Requests)
					}
				}
			}
		default:
			continue
		}
		if math.Abs(got-want) > 1e-9 {
			p.t.Errorf("%s: %s is %v, want %v", p.at, key, got, want)
		}
	}
}

func (p *replay) equal(what string, got, want any) {
	p.t.Helper()
	if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		p.t.Errorf("%s: %s (-recorded +ours):\n%s", p.at, what, d)
	}
}
