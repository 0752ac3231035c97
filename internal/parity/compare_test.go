package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// lb returns the envoy.lb metadata of a recorded message: destination and scores.
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

func (x *exchange) recordedHeaders() *Message { return first(x.recorded.Messages, "request_headers") }

func (m *Message) header(name string) string {
	for _, h := range m.SetHeaders {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// choose is the picker's test hook. It returns the endpoints that the real picker chose.
func (pl *player) choose(c *picker.Cycle, profile string, candidates []int32) []int32 {
	x := pl.force.Load()
	if known, ok := pl.known.Load(c.Request.ID); ok {
		x = known.(*exchange)
	}
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

// compare compares one request's answer with the recorded one.
func (pl *player) compare(x *exchange) {
	rec := x.recorded.Messages
	if len(rec) == 0 {
		return
	}
	if rec[0].Type == "immediate_response" {
		pl.compareRefusal(x, &rec[0])
		return
	}
	if refused(x.got) {
		pl.fault(x.id, "answer", "dispatched", fmt.Sprint(x.refusal()))
		return
	}
	m := &x.got[0]
	if m.Type != "request_headers" || m.ClearRouteCache != x.recordedHeaders().ClearRouteCache {
		pl.fault(x.id, "first message", fmt.Sprint("request_headers ", x.recordedHeaders().ClearRouteCache),
			fmt.Sprint(m.Type, " ", m.ClearRouteCache))
		return
	}
	pl.compareDispatch(x, m)
	sent := len(x.forwarded())
	if n := m.header("content-length"); n != "" && n != fmt.Sprint(sent) {
		pl.fault(x.id, "content-length", fmt.Sprint(sent), n)
	}
	if last := &x.got[len(x.got)-1]; x.request.Body != nil && (last.Type != "request_body" || !last.EOS) {
		pl.fault(x.id, "last message", "end of the body", last.Type)
	}
	if d := cmp.Diff(x.recordedHeaders().otherMetadata(), m.otherMetadata()); d != "" {
		pl.fault(x.id, "metadata", "", d)
	}
}

// otherMetadata returns a message's metadata without destination and scores.
func (m *Message) otherMetadata() map[string]any {
	out := map[string]any{}
	for ns, v := range m.Metadata {
		fields, _ := v.(map[string]any)
		for k, v := range fields {
			if k != picker.HeaderDestination && k != picker.KeyScores {
				out[ns+" "+k] = v
			}
		}
	}
	return out
}

// compareDispatch checks a request that was sent to an endpoint. Its first message is m.
func (pl *player) compareDispatch(x *exchange, m *Message) {
	recorded := x.recordedHeaders()
	dest, scores := recorded.lb()
	if got := x.destination(); got != dest {
		pl.fault(x.id, "destination", dest, got)
	}
	pl.compareScores(x, scores)
	pl.compareHeaders(x, recorded, m.SetHeaders, m.RemoveHeaders)
	body := string(x.forwarded())
	for _, b := range x.recorded.Messages {
		if b.Type == "request_body" && b.Body != nil && !sameJSON(*b.Body, body) {
			pl.fault(x.id, "body", *b.Body, body)
		}
	}
}

func first(list []Message, kind string) *Message {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// refusal returns a refused request's answer, or nil if it was not refused.
func (x *exchange) refusal() *Message { return first(x.got, "immediate_response") }

func refused(got []Message) bool { return len(got) == 0 || first(got, "immediate_response") != nil }

// destination returns the endpoint of a request, or "" if it was refused.
func (x *exchange) destination() (dest string) {
	if m := first(x.got, "request_headers"); m != nil {
		dest, _ = m.lb()
	}
	return dest
}

// scores returns the scores of a decision.
func (x *exchange) scores() (scores map[string]float64) {
	if m := first(x.got, "request_headers"); m != nil {
		_, scores = m.lb()
	}
	return scores
}

// forwarded returns the body that goes to the endpoint.
func (x *exchange) forwarded() (body []byte) {
	for _, m := range x.got {
		if m.Type == "request_body" {
			body = append(body, *m.Body...)
		}
	}
	return body
}

func (pl *player) compareRefusal(x *exchange, m *Message) {
	got := x.refusal()
	if got == nil {
		pl.fault(x.id, "answer", *m.Body, "dispatched to "+x.destination())
		return
	}
	pl.sameRefusal(x.id, m, got)
}

// sameRefusal compares two immediate responses.
func (pl *player) sameRefusal(unit string, want, got *Message) {
	if got == nil {
		pl.fault(unit, "immediate response", fmt.Sprint(want.Status, " ", *want.Body), "none")
		return
	}
	if got.Status != want.Status && want.Status != 0 {
		pl.fault(unit, "status", fmt.Sprint(want.Status), fmt.Sprint(got.Status))
	}
	if *want.Body != *got.Body && *want.Body != uuids.ReplaceAllString(*got.Body, "<uuid>") {
		pl.fault(unit, "immediate body", *want.Body, *got.Body)
	}
	if d := cmp.Diff(want.SetHeaders, got.SetHeaders, cmpopts.EquateEmpty()); d != "" {
		pl.fault(unit, "refusal set_headers", "", d)
	}
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// compareScores compares candidates and totals, and checks that the recorded choice has one of the best totals here.
func (pl *player) compareScores(x *exchange, want map[string]float64) {
	got := x.scores()
	if (want == nil) != (got == nil) {
		pl.fault(x.id, "scores present", fmt.Sprint(want), fmt.Sprint(got))
		return
	}
	if want == nil {
		return
	}
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
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
		// The real picker's order of endpoints that were never used is arbitrary: whole rank steps that cancel out.
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
	for n, to := range strings.Split(x.destination(), ",") {
		if math.Abs(got[to]-all[n]) > tolerance {
			pl.fault(x.id, "recorded choice has none of the best totals here", to, fmt.Sprint(got))
		}
	}
}

func (pl *player) compareHeaders(x *exchange, m *Message, set [][2]string, remove []string) {
	id, own := x.request.Headers[picker.HeaderRequestID]
	norm := func(list [][2]string) [][2]string {
		var out [][2]string
		for _, h := range list {
			k := strings.ToLower(h[0])
			v := h[1]
			if k == "content-length" {
				v = "N"
			}
			if k == picker.HeaderRequestID && (!own || id == "" || v == id) {
				v = "<id>"
			}
			out = append(out, [2]string{k, v})
		}
		sort.Slice(out, func(i, j int) bool { return out[i][0]+out[i][1] < out[j][0]+out[j][1] })
		return out
	}
	recorded, wantRemoved := m.SetHeaders, slices.Clone(m.RemoveHeaders)
	for _, name := range injected {
		sent, ok := x.request.Headers[name]
		if !ok || slices.ContainsFunc(set, func(h [2]string) bool { return strings.EqualFold(h[0], name) }) {
			continue
		}
		recorded = slices.DeleteFunc(slices.Clone(recorded),
			func(h [2]string) bool { return strings.EqualFold(h[0], name) && h[1] == sent })
		wantRemoved = append(wantRemoved, name)
	}
	want, got := norm(recorded), norm(set)
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
