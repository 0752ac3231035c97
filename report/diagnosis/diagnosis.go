// Package diagnosis turns the record of a run into the facts that core/diagnose reads. Begin with Start for events, or
// with ReadFile for a recording.
package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/overtime"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Reader reads the events of a run. Record may be called by several goroutines.
type Reader struct {
	*report.Session
	mu       sync.Mutex // guards what follows
	said     map[string]*complaint
	sidecars map[string]bool // endpoints that are sidecars, up to maxSidecars
}

// complaint counts what a part said, and when.
type complaint struct {
	count       int
	first, last machine.Time
}

// blocked begins the complaint about a prefiller that a sidecar blocks.
const blocked = string(record.PrefillerBlocked) + ": "

// maxSaid bounds the complaints that are counted separately, and longest the length of each in bytes.
const maxSaid, longest = 64, 400

// maxSidecars bounds the endpoints that are known to be sidecars.
const maxSidecars = 10_000

// Start begins to read a run with objectives and expectations, if it has any.
func Start(o report.Options) (*Reader, error) {
	o.Out, o.Detail = io.Discard, report.Progress
	s, err := report.Start(o)
	return &Reader{Session: s, said: map[string]*complaint{}, sidecars: map[string]bool{}}, err
}

// ReadFile returns the facts of a recording, and its summary.
func ReadFile(file string) (*diagnose.Facts, *report.Summary, error) {
	r, err := Start(report.Options{})
	if err != nil {
		return nil, nil, err
	}
	end, err := report.ReadFile(file, func(e record.Event) error { r.Record(e); return nil })
	if err != nil {
		return nil, nil, err
	}
	if end != nil {
		r.Restore(*end)
	}
	f, sum, err := r.Facts(end == nil)
	return f, &sum, err
}

// Record takes one event.
func (r *Reader) Record(e record.Event) {
	r.Session.Record(e)
	if e.Hop == record.Sidecar && e.Step == record.RequestReceived && e.Endpoint != "" {
		r.mu.Lock()
		if len(r.sidecars) < maxSidecars {
			r.sidecars[e.Endpoint] = true
		}
		r.mu.Unlock()
		return
	}
	reason, _ := e.Details.Get("reason").(string)
	switch e.Step {
	case record.Answered, record.Rejected, record.Violation, record.Finished:
	case record.Aborted:
		cause, _ := e.Details.Get("cause").(string)
		reason = strings.Trim(reason+" "+cause, " ")
	case record.PrefillLegFailed, record.ScrapeFailed, record.CallFailed:
		plugin, _ := e.Details.Get("plugin").(string)
		url, _ := e.Details.Get("url").(string)
		reason = strings.Join(strings.Fields(fmt.Sprint(e.Step, ": ", plugin, " ", url, " ", reason)), " ")
	case record.ConfigRefused:
		reason = "mistake: " + reason
	case record.PrefillerBlocked:
		if reason = blocked + e.Endpoint; e.Details.Get("allowed") == 0 {
			reason += ", as every prefiller"
		}
	case record.Logged:
		if from, _ := e.Details.Get("from").(string); strings.HasPrefix(from, "ext_proc_error") {
			reason = "Envoy: " + from
		}
	default:
		return
	}
	if reason == "" {
		return
	}
	key := string(e.Hop) + "\x00" + reason[:min(len(reason), longest)]
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.said[key]
	if c == nil {
		if len(r.said) == maxSaid {
			return
		}
		c = &complaint{first: e.Time}
		r.said[strings.Clone(key)] = c
	}
	c.count++
	c.first, c.last = min(c.first, e.Time), max(c.last, e.Time)
}

// complaints returns what was said, the most frequent first. Hops that say the same, or the beginning of it, count
// once.
func (r *Reader) complaints() (out []diagnose.Complaint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(r.said)) {
		c := r.said[key]
		_, text, _ := strings.Cut(key, "\x00")
		when := "at " + terminal.Span(c.first.Seconds())
		if c.count > 1 {
			when = fmt.Sprintf("from %s to %s", terminal.Span(c.first.Seconds()), terminal.Span(c.last.Seconds()))
		}
		x := diagnose.Complaint{Text: text, Count: c.count, When: when}
		if i := slices.IndexFunc(out, func(o diagnose.Complaint) bool { return o.Text == text }); i >= 0 {
			if out[i].Count < x.Count {
				out[i] = x
			}
			continue
		}
		out = append(out, x)
	}
	all := slices.Clone(out)
	out = slices.DeleteFunc(out, func(c diagnose.Complaint) bool {
		return slices.ContainsFunc(all, func(o diagnose.Complaint) bool {
			return len(o.Text) > len(c.Text) && strings.HasPrefix(o.Text, c.Text)
		})
	})
	sort.SliceStable(out, func(i, j int) bool { return out[i].Count > out[j].Count })
	return out
}

// Facts ends the run, and returns its facts and its summary.
func (r *Reader) Facts(interrupted bool) (*diagnose.Facts, report.Summary, error) {
	sum, err := r.End(interrupted)
	if err != nil {
		return nil, sum, err
	}
	f := &collector{Facts: diagnose.Facts{Requests: sum.Requests, Complaints: r.complaints(),
		Excused: len(sum.Expectations) > 0 && sum.Missed() == 0, Disaggregated: len(sum.PrefillServers) > 0}}
	for _, e := range sum.Expectations {
		if !e.OK {
			f.Symptoms = append(f.Symptoms, fmt.Sprintf("%s: expected %s, found %s", e.What, e.Expected, e.Found))
		}
	}
	f.objectives(&sum)
	f.times(&sum)
	for i := range sum.Load {
		f.load(&sum.Load[i], sum.Requests)
	}
	f.steps(&sum)
	f.misplaced(&sum, r.sidecars)
	return &f.Facts, sum, nil
}

type collector struct{ diagnose.Facts }

// add adds a figure that is known.
func (f *collector) add(n diagnose.Name, v float64, where, when string) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		f.Figures = append(f.Figures, diagnose.Figure{Name: n, Value: v, Where: where, When: when})
	}
}

// worstOf is how many requests a stretch needs to be called the worst.
const worstOf = 20

// worst returns the stretch of a run with the smallest share of good requests, in words.
func worst(o *overtime.Run) (when string) {
	if o == nil {
		return ""
	}
	least := 1.0
	for _, x := range o.Stretches {
		if share := float64(x.Good) / float64(max(1, x.Ended)); x.Ended >= worstOf && share < least {
			least, when = share, fmt.Sprintf("worst from %s to %s: %.3g%%", terminal.Span(x.From),
				terminal.Span(x.From+o.Width), 100*share)
		}
	}
	return when
}

// objectives adds the share of good requests, and of those that failed.
func (f *collector) objectives(sum *report.Summary) {
	requests := float64(max(1, sum.Requests))
	missed, share, judged := sum.MissedSLO, 0.0, false
	for _, m := range sum.Measures {
		if m.Measure == "attainment" && sum.SLO != nil {
			share, judged = m.Value, true
		}
	}
	if n := len(sum.Classes); n > 0 {
		all := &sum.Classes[n-1]
		share, missed, judged = all.Attainment, all.Missed, judged || len(all.Missed) > 0
	}
	if judged {
		f.add(diagnose.Attainment, share, "", worst(sum.OverTime))
		f.add(diagnose.MissedTTFT, float64(missed["ttft"])/requests, "", "")
		f.add(diagnose.MissedTPOT, float64(missed["tpot"])/requests, "", "")
	}
	if n := sum.Failed() - sum.Outcomes[record.Left]; sum.Requests > 0 {
		var kinds []string
		for _, o := range record.Outcomes() {
			if k := sum.Outcomes[o]; k > 0 && o != record.Completed && o != record.Left {
				kinds = append(kinds, fmt.Sprintf("%s %d", o, k))
			}
		}
		f.add(diagnose.Failures, float64(n)/requests, "", strings.Join(kinds, ", "))
	}
}

// times adds the parts of the median time to the first token.
func (f *collector) times(sum *report.Summary) {
	spans := map[string]report.SpanSummary{}
	for _, s := range sum.Spans {
		spans[s.Name] = s
	}
	ttft := spans["ttft"]
	if pick, known := spans["pick"]; known {
		f.add(diagnose.Pick90, pick.P90, "", "")
	}
	moved := 0.0
	if t := sum.Transfers; t != nil {
		moved = t.P50
		f.add(diagnose.Transfer90, t.P90, "", "")
	}
	if ttft.Count == 0 || ttft.P50 == 0 {
		return
	}
	f.add(diagnose.Latency90, ttft.P90, "", "")
	rest := 1.0
	for _, x := range []struct {
		name    diagnose.Name
		seconds float64
	}{ // a decode server's queue has the requests that wait for their caches, too
		{diagnose.QueueShare, spans["queueP"].P50 + spans["queue"].P50 - moved},
		{diagnose.WorkShare, spans["prefillP"].P50 + spans["prefill"].P50}, {diagnose.PickShare, spans["pick"].P50},
		{diagnose.MoveShare, moved}} {
		share := min(max(x.seconds/ttft.P50, 0), 1)
		f.add(x.name, share, "", "")
		rest -= share
	}
	f.add(diagnose.WayShare, max(rest, 0), "", "")
}

// load adds how busy and full the servers of a pool with one role were.
func (f *collector) load(x *report.LoadSummary, requests int) {
	where := strings.TrimSpace(x.Pool + " " + string(x.Role) + " servers")
	if x.Role == report.Both {
		where = x.Pool
	}
	queue, least, at := x.Queue.Mean, math.Inf(1), where
	for i := range x.Each {
		if e := &x.Each[i]; e.Queue.Mean > queue {
			queue, at = e.Queue.Mean, e.Name
		}
		least = min(least, x.Each[i].Queue.Mean)
	}
	if len(x.Each) < 2 {
		least = math.NaN()
	}
	f.add(diagnose.Queue, queue, at, "")
	for _, y := range []struct {
		name  diagnose.Name
		value float64
	}{{diagnose.QueuePeak, x.Queue.Peak}, {diagnose.QueueLeast, least},
		{diagnose.BatchUse, x.Running.Mean / float64(x.Slots)}, {diagnose.KVUse, x.KV.Mean},
		{diagnose.GPUUse, x.Busy.Most}, {diagnose.PromptUse, x.Prompts},
		{diagnose.Preempted, float64(x.Preemptions) / float64(max(1, requests))}} {
		f.add(y.name, y.value, where, "")
	}
}

// misplaced adds the share of the picks that name a prefill server: one to which sidecars send prefill legs, or, where
// sidecars stand before the decode servers, one without a sidecar.
func (f *collector) misplaced(sum *report.Summary, sidecars map[string]bool) {
	total, picked, where := 0, 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(sum.Endpoints)) {
		n := sum.Endpoints[name]
		total += n
		if n > 0 && (sum.PrefillServers[name] > 0 || len(sidecars) > 0 && !sidecars[name]) {
			picked, where = picked+n, append(where, name)
		}
	}
	if picked > 0 && len(sidecars) < maxSidecars {
		f.add(diagnose.Misplaced, float64(picked)/float64(total), strings.Join(where[:min(len(where), 3)], ", "), "")
	}
}

// steps adds what the picker, the caches and held-open requests show.
func (f *collector) steps(sum *report.Summary) {
	if c := sum.PrefixCache; c != nil && c.PromptTokens > 0 {
		f.add(diagnose.HitRate, c.HitRate, "", "")
	}
	total, busiest := 0, ""
	for _, name := range slices.Sorted(maps.Keys(sum.Endpoints)) {
		n := sum.Endpoints[name]
		if total += n; busiest == "" || n > sum.Endpoints[busiest] {
			busiest = name
		}
	}
	if n := len(sum.Endpoints); n > 1 && total > 0 {
		f.add(diagnose.Balance, float64(sum.Endpoints[busiest]*n)/float64(total), busiest, "")
	}
	for _, x := range sum.IndexLag {
		f.add(diagnose.IndexGot, float64(x.Events), x.Index, "")
		f.add(diagnose.IndexLacks, float64(x.Missing)/float64(cmp.Or(x.Blocks, 1)), x.Index, "")
	}
	epp := sum.Hops[record.EPP]
	if epp[record.Part1Sent] == 0 {
		return
	}
	f.add(diagnose.Part1, float64(epp[record.Part1Sent]), "", "")
	f.add(diagnose.FirstSeen, float64(epp[record.FirstTokenSeen]), "", "")
	f.add(diagnose.Part2, float64(epp[record.Part2Sent]), "", "")
	if servers := sum.Hops[record.Server]; len(servers) > 0 {
		f.add(diagnose.Part1There, float64(servers[record.Part1Received]), "", "")
	}
}
