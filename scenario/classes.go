package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// TrafficClass is one of several kinds of traffic. The workload's fields apply where the class leaves them out.
type TrafficClass struct {
	// The class's name in records and in the report.
	Name string `json:"name"`
	// The part of all conversations. Either every class has a share, and the sum is 100%, or every class has a rate.
	Share Share `json:"share"`
	// Conversations per second of this class. workload.rate is then the sum of the classes' rates.
	Rate float64 `json:"rate" min:"0" max:"10000000"`
	// The name of the InferenceObjective that requests ask for by header.
	Objective string `json:"objective"`
	// The fairness id in the requests' header: the tenant that they belong to.
	FairnessID string `json:"fairnessID"`
	// The priority field of the body, for model servers whose policy is priority; smaller is earlier. 0: none.
	Priority int `json:"priority" min:"-1000000" max:"1000000"`
	// The path of its requests, in place of the workload's.
	Path string `json:"path"`
	// The host of its requests, in place of the workload's.
	Host string `json:"host"`
	// More fields of its requests' bodies, in place of the workload's, such as '{"cache_salt": "a tenant"}'.
	BodyFields string `json:"bodyFields"`
	// Headers of the class's requests, besides the workload's of other names.
	Headers []RequestHeader `json:"headers" max:"64"`
	// The model that its requests ask for, in place of the workload's.
	Model string `json:"model"`
	// LoRA adapters of the class, in place of the workload's.
	LoRAAdapters []AdapterShare `json:"loraAdapters" max:"1024"`
	// The content of its prompts, in place of all of the workload's.
	Prompt Prompt `json:"prompt"`
	// The most tokens that its requests ask for.
	MaxTokens int `json:"maxTokens" min:"0" max:"1000000"`
	// How many tokens each of its answers has.
	OutputTokens dist.Dist `json:"outputTokens" unit:"count" min:"1" max:"1000000"`
	// Whether its requests ask for server-sent events.
	Stream bool `json:"stream"`
	// Whether streamed answers end with their number of tokens.
	IncludeUsage bool `json:"includeUsage"`
	// The length of its conversations, and the pauses in them.
	Conversations Conversations `json:"conversations"`
	// The objectives of a good request.
	SLO SLO `json:"slo"`
}

// checkClasses checks the classes of traffic, and sets their defaults.
func (s *checker) checkClasses() {
	w := &s.Workload
	add := func(path, found, expected string) { s.bad("workload."+path, found, expected) }
	if len(w.Classes) == 0 {
		return
	}
	names := map[string]bool{}
	shares, rates, shareSum, rateSum := 0, 0, 0.0, 0.0
	for i := range w.Classes {
		x, at := &w.Classes[i], fmt.Sprintf("classes[%d]", i)
		if x.Name == "" || len(x.Name) > 64 || names[x.Name] {
			add(at+".name", found(x.Name), "a name of its own, at most 64 characters")
		}
		names[x.Name] = true
		shares, rates = shares+countTrue(x.Share > 0), rates+countTrue(x.Rate > 0)
		shareSum, rateSum = shareSum+float64(x.Share), rateSum+x.Rate
		for _, h := range []struct{ field, value string }{{"objective", x.Objective}, {"fairnessID", x.FairnessID}} {
			if !headerValue(h.value) {
				add(at+"."+h.field, fmt.Sprintf("found %.80q", h.value), headerValueHelp)
			}
		}
		if s.written("workload." + at + ".prompt") {
			x.Prompt.complete()
		}
		own := w.of(s.Scenario, i)
		s.checkWhere(own, "workload."+at)
		s.checkAsked(own, "workload."+at)
	}
	switch n := len(w.Classes); {
	case shares > 0 && rates > 0, shares < n && rates < n:
		add("classes", "some have a share, and some a rate or neither", "a share of each, or a rate of each")
	case shares > 0 && (shareSum < 1-1e-6 || shareSum > 1+1e-6):
		add("classes", fmt.Sprintf("the shares come to %.4g%%", 100*shareSum), "100%")
	case rates > 0 && (s.written("workload.rate") || len(w.Stages) > 0):
		add("classes", "they have rates, and the workload has, too",
			"shares of the workload's rate, or rates of the classes alone")
	case rates > 0:
		w.Rate = rateSum
	}
}

// each calls yield with the workload of each class, or with the workload itself.
func (w *Workload) each(s *Scenario, yield func(*Workload)) {
	for i := range w.Classes {
		yield(w.of(s, i))
	}
	if len(w.Classes) == 0 {
		yield(w)
	}
}

// of returns the workload of one class alone.
func (w *Workload) of(s *Scenario, i int) *Workload {
	x, own := &w.Classes[i], *w
	own.Classes = nil
	has := func(field string) bool { return s.written(fmt.Sprintf("workload.classes[%d].%s", i, field)) }
	from, to := reflect.ValueOf(x).Elem(), reflect.ValueOf(&own).Elem()
	for _, f := range strictyaml.Fields(from.Type()) {
		into := to.FieldByName(from.Type().FieldByIndex(f.Index).Name)
		if into.IsValid() && has(f.Name) {
			into.Set(from.FieldByIndex(f.Index))
		}
	}
	own.Rate = w.Rate // a class's rate is its share of the workload's
	switch {
	case has("maxTokens") && !has("outputTokens"):
		own.OutputTokens = dist.Dist{}
	case has("outputTokens") && !has("maxTokens"):
		own.MaxTokens = 0
	}
	own.Headers = slices.Clone(x.Headers) // these first: problems name headers by their index
	for _, h := range []RequestHeader{{Name: picker.HeadersObjective[0], Value: x.Objective},
		{Name: picker.HeadersFairness[0], Value: x.FairnessID}} {
		if h.Value != "" && headerValue(h.Value) { // checkClasses reports a bad value
			own.Headers = append(own.Headers, h)
		}
	}
	given := own.Headers
	for _, h := range w.Headers {
		if !slices.ContainsFunc(given, func(g RequestHeader) bool { return strings.EqualFold(g.Name, h.Name) }) {
			own.Headers = append(own.Headers, h)
		}
	}
	own.priority, own.class = x.Priority, i+1
	return &own
}

// fields returns the further fields of bodies: the inside of a JSON object.
func (w *Workload) fields() []byte {
	inside := objectInside(w.BodyFields)
	add := func(name string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // a number or a mapping of a bool
		}
		if len(inside) > 0 {
			inside = append(inside, ',')
		}
		inside = append(fmt.Appendf(inside, "%q:", name), text...)
	}
	if w.IncludeUsage && w.Stream {
		add("stream_options", map[string]bool{"include_usage": true})
	}
	if w.priority != 0 {
		add("priority", w.priority)
	}
	return inside
}

// classes sets the generator's classes of traffic. of makes the configuration of each.
func (s *Scenario) classes(c *workload.Config, of func(*Workload) *workload.Config) {
	w, sum := &s.Workload, 0.0
	for i := range w.Classes {
		sum += float64(w.Classes[i].Share) + w.Classes[i].Rate
	}
	for i := range w.Classes {
		x := &w.Classes[i]
		own := of(w.of(s, i))
		own.Class = x.Name
		c.Classes = append(c.Classes, workload.Class{Share: (float64(x.Share) + x.Rate) / sum, Config: own})
	}
}
