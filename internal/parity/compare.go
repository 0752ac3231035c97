package parity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/picker"
)

// lb is the envoy.lb metadata of a recorded message: destination and scores.
func (m *Message) lb() (dest string, scores map[string]float64) {
	lb, _ := m.Metadata[picker.NamespaceLB].(map[string]any)
	dest, _ = lb[picker.HeaderDestination].(string)
	if s, ok := lb[picker.KeyScores].(map[string]any); ok {
		scores = map[string]float64{}
		for k, v := range s {
			switch x := v.(type) {
			case float64:
				scores[k] = x
			case string:
				scores[k] = math.NaN()
			}
		}
	}
	return dest, scores
}

func (x *exchange) recordedHeaders() *Message {
	for i := range x.recorded.Messages {
		if x.recorded.Messages[i].Type == "request_headers" {
			return &x.recorded.Messages[i]
		}
	}
	return nil
}

func (m *Message) header(name string) string {
	for _, h := range m.SetHeaders {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// choose is the picker's test hook: the endpoints that the real one chose.
func (pl *player) choose(c *picker.Cycle, profile string, candidates []int32) []int32 {
	x := pl.force
	if x == nil {
		return nil
	}
	m := x.recordedHeaders()
	if m == nil {
		return nil
	}
	var want string
	switch profile {
	case "prefill":
		want = m.header(picker.HeaderPrefiller)
		if pl.line.hasHeaderProfile() {
			want, _ = m.lb()
		}
	case "encode":
		want = m.header(picker.HeaderEncoders)
	default:
		want, _ = m.lb()
		if dp := m.header(picker.HeaderDataParallel); dp != "" && strings.Contains(pl.line.Config, "rimaryPort") {
			want = dp
		}
	}
	var out []int32
	for part := range strings.SplitSeq(want, ",") {
		for _, i := range candidates {
			if c.State(i).HostPort() == part && !slices.Contains(out, i) {
				out = append(out, i)
				break
			}
		}
	}
	return out
}

func (l *Line) hasHeaderProfile() bool { return strings.Contains(l.Config, "header-profile-handler") }

// compare checks one request's answer against the recorded one.
func (pl *player) compare(x *exchange) {
	rec := x.recorded.Messages
	if len(rec) == 0 {
		return
	}
	if rec[0].Type == "immediate_response" {
		pl.compareRefusal(x, &rec[0])
		return
	}
	if x.err != nil || x.refusal != nil {
		pl.fault(x.id, "answer", "dispatched", fmt.Sprint(x.err, x.refusal))
		return
	}
	m := x.recordedHeaders()
	dest, scores := m.lb()
	got := x.d.Destination()
	if got != dest {
		pl.fault(x.id, "destination", dest, got)
	}
	pl.compareScores(x, scores)
	body, err := x.req.ForwardBody()
	if err != nil {
		pl.fault(x.id, "body", "", err.Error())
	}
	set, remove := x.d.RequestHeaders(len(body))
	pl.compareHeaders(x, m, set, remove)
	for _, b := range rec {
		if b.Type == "request_body" && b.Body != nil {
			if !sameJSON(*b.Body, string(body)) {
				pl.fault(x.id, "body", *b.Body, string(body))
			}
		}
	}
}

func (pl *player) compareRefusal(x *exchange, m *Message) {
	status, body, reason := 0, "", ""
	switch {
	case x.refusal != nil:
		status, body, reason = x.refusal.Status, x.refusal.Body(), x.refusal.Reason
	case x.err != nil:
		status, body, reason = x.err.Code.Status(), x.err.Error(), x.err.Reason
	default:
		pl.fault(x.id, "answer", *m.Body, "dispatched to "+x.d.Destination())
		return
	}
	if status != m.Status {
		pl.fault(x.id, "status", fmt.Sprint(m.Status), fmt.Sprint(status))
	}
	if *m.Body != body && *m.Body != strings.ReplaceAll(body, x.req.ID, "<uuid>") {
		pl.fault(x.id, "immediate body", *m.Body, body)
	}
	if want := m.header(picker.HeaderDropReason); want != reason {
		pl.fault(x.id, "drop reason", want, reason)
	}
}

// compareScores checks candidates and totals, and that the recorded choice was
// one of our best.
func (pl *player) compareScores(x *exchange, want map[string]float64) {
	got := x.d.Scores()
	if (want == nil) != (got == nil) {
		pl.fault(x.id, "scores present", fmt.Sprint(want), fmt.Sprint(got))
		return
	}
	if want == nil {
		return
	}
	if a, b := sortedKeys(want), sortedKeys(got); !slices.Equal(a, b) {
		pl.fault(x.id, "candidates", fmt.Sprint(a), fmt.Sprint(b))
		return
	}
	diff := map[string]float64{}
	for k, w := range want {
		if math.IsNaN(w) || math.Abs(w-got[k]) > tolerance {
			diff[k] = got[k] - w
		}
	}
	if len(diff) > 0 && pl.noHit {
		// The real one's order among endpoints that were never used is
		// arbitrary: whole rank steps that cancel out.
		sum, whole := 0.0, true
		for _, d := range diff {
			steps := d / pl.weight * float64(len(want)-1)
			sum += steps
			whole = whole && math.Abs(steps-math.Round(steps)) < 1e-6
		}
		if whole && math.Abs(sum) < 1e-6 {
			return
		}
	}
	if len(diff) > 0 {
		pl.fault(x.id, "scores", fmt.Sprint(want), fmt.Sprint(got))
		return
	}
	if pl.random {
		return
	}
	var all []float64
	for _, v := range got {
		all = append(all, v)
	}
	sort.Sort(sort.Reverse(sort.Float64Slice(all)))
	for n, t := range x.d.Targets {
		if math.Abs(got[t.HostPort]-all[n]) > tolerance {
			pl.fault(x.id, "recorded choice is not among our best", t.HostPort, fmt.Sprint(got))
		}
	}
}

func (pl *player) compareHeaders(x *exchange, m *Message, set []picker.Header, remove []string) {
	norm := func(list [][2]string) [][2]string {
		var out [][2]string
		for _, h := range list {
			k := strings.ToLower(h[0])
			v := h[1]
			if k == "content-length" {
				v = "N"
			}
			if k == picker.HeaderRequestID && v == x.req.ID {
				v = "<id>"
			}
			if k == picker.HeaderRequestID && v == "<uuid>" {
				v = "<id>"
			}
			out = append(out, [2]string{k, v})
		}
		sort.Slice(out, func(i, j int) bool { return out[i][0]+out[i][1] < out[j][0]+out[j][1] })
		return out
	}
	recorded, wantRemoved := m.SetHeaders, slices.Clone(m.RemoveHeaders)
	for _, name := range injected {
		sent, ok := x.req.Headers.Get(name)
		if _, set := x.d.Set.Get(name); !ok || set {
			continue
		}
		recorded = slices.DeleteFunc(slices.Clone(recorded), func(h [2]string) bool { return strings.EqualFold(h[0], name) && h[1] == sent })
		wantRemoved = append(wantRemoved, name)
	}
	want, got := norm(recorded), norm(pairs(set))
	if d := cmp.Diff(want, got); d != "" {
		pl.fault(x.id, "set_headers", "", d)
	}
	remove = slices.Clone(remove)
	sort.Strings(remove)
	sort.Strings(wantRemoved)
	if !slices.Equal(wantRemoved, remove) {
		pl.fault(x.id, "remove_headers", fmt.Sprint(wantRemoved), fmt.Sprint(remove))
	}
}

func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return cmp.Equal(x, y)
}
