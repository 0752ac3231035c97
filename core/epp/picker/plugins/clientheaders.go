package plugins

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// TypeClientHeaders is the type of clientHeaders.
const TypeClientHeaders = "client-headers"

// clientHeaders lets clients ask for what document 003 (docs/documents.md) has headers
// for, within limits: a priority where no objective gives one, a model, how much
// cached prompts count, how long the pod's answer may take and how often it is tried
// again. A header that asks for something else, or that cannot be read, has no effect.
type clientHeaders struct {
	named
	Priorities struct {
		High   int `json:"high"`
		Normal int `json:"normal"`
		Low    int `json:"low"`
		// Least and Most bound a number.
		Least int `json:"min"`
		Most  int `json:"max"`
	} `json:"priority"`
	// Models are the models that clients may choose; an empty list permits any.
	Models []string `json:"models" max:"1000"`
	// Prefer is the factor by which prefer-hit multiplies the weights of cache scorers.
	Prefer float64 `json:"preferHit" min:"1" max:"1000"`
	// Timeout bounds x-request-timeout; 0 does not.
	Timeout strictyaml.Duration `json:"maxTimeout" min:"0s"`
	// Retries bounds x-max-retries; 0 takes the header out of force.
	Retries int `json:"maxRetries" min:"0" max:"100"`
}

func newClientHeaders(_ *picker.Builder, _ string, p picker.Params) (picker.Plugin, error) {
	x := &clientHeaders{Prefer: 2}
	x.Priorities.High, x.Priorities.Low, x.Priorities.Least, x.Priorities.Most = 10, -10, -10, 10
	if err := p.Decode(x); err != nil {
		return nil, err
	}
	if l := &x.Priorities; l.Least > l.Most {
		return nil, p.At("priority").Expected("min not above max")
	}
	return x, nil
}

// RequestHeader reads what is asked for.
func (x *clientHeaders) RequestHeader(r *picker.Request) {
	if asked := r.Headers.Get(picker.HeaderPriority); asked != "" && r.Objective.Name == "" {
		r.Objective.Priority = x.priority(asked, r.Objective.Priority)
	}
	r.MaxWait = machine.FromDuration(x.limit(r))
	model := r.Headers.Get(picker.HeaderModelOverride)
	if model != "" && r.Rewrite == "" && r.Body != nil && r.Body.JSON() &&
		(len(x.Models) == 0 || slices.Contains(x.Models, model)) {
		r.TargetModel = model
	}
}

func (x *clientHeaders) priority(text string, otherwise int) int {
	l := &x.Priorities
	switch text {
	case "high":
		return l.High
	case "normal":
		return l.Normal
	case "low":
		return l.Low
	}
	if n, err := strconv.Atoi(text); err == nil {
		return min(max(n, l.Least), l.Most)
	}
	return otherwise
}

// Weigh multiplies what scorers of cached prompts count.
func (x *clientHeaders) Weigh(r *picker.Request, s picker.Scorer) float64 {
	if _, cache := s.(picker.CacheScorer); cache && r.Headers.Get(picker.HeaderCachePolicy) == "prefer-hit" {
		return x.Prefer
	}
	return 1
}

// limit returns the client's limit on a request's time (x-request-timeout); 0 is none.
func (x *clientHeaders) limit(r *picker.Request) time.Duration {
	limit, err := time.ParseDuration(r.Headers.Get(picker.HeaderRequestTimeout))
	if err != nil || limit < time.Millisecond {
		return 0
	}
	if most := x.Timeout.Time().Duration(); most > 0 {
		limit = min(limit, most)
	}
	return limit
}

// The headers in which Envoy takes a request's limits from those that it trusts.
const (
	envoyTimeout = "x-envoy-upstream-rq-timeout-ms"
	envoyRetries = "x-envoy-max-retries"
)

// Commit passes the client's limits on time and retries to Envoy.
func (x *clientHeaders) Commit(_ machine.Time, d *picker.Decision) {
	if limit := x.limit(d.Request); limit > 0 {
		d.SetHeader(envoyTimeout, strconv.FormatInt(min(limit.Milliseconds(), math.MaxInt32), 10))
	}
	if n, err := strconv.Atoi(d.Request.Headers.Get(picker.HeaderMaxRetries)); err == nil && n >= 0 && x.Retries > 0 {
		d.SetHeader(envoyRetries, strconv.Itoa(min(n, x.Retries)))
	}
}
