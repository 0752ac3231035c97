package lab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// Metric limits the effect of a check's traffic on a metric, summed over pods.
type Metric struct {
	// Pods selects the pods by their labels, and Name the metric's series, as name{label="value"}.
	Pods string `json:"pods"`
	Name string `json:"name"`
	// Per, if given, is a metric by whose growth the growth is divided.
	Per string `json:"per"`
	// Now compares the value after the traffic, and not its growth.
	Now bool `json:"now"`
	// AtLeast and AtMost are the limits. A nil AtMost is none.
	AtLeast float64  `json:"atLeast"`
	AtMost  *float64 `json:"atMost"`
}

// Values are the sums of metrics at one time, two for each Metric: the metric and its divisor.
type Values [][2]float64

// Values reads the lab's metrics.
func (l *Lab) Values(ctx context.Context, s State) (Values, error) {
	out := make(Values, len(l.Metrics))
	for i, m := range l.Metrics {
		pods, err := s.podsWith(m.Pods)
		if err != nil {
			return nil, fmt.Errorf("lab %s: metrics[%d].pods: %w", l.Name, i, err)
		}
		for _, p := range pods {
			if p.metrics == "" {
				continue
			}
			page, err := fetchPage(ctx, p.metrics)
			if err != nil {
				continue // a pod that does not answer adds nothing
			}
			for k, name := range []string{m.Name, m.Per} {
				spec, err := metrics.ParseSpec(name)
				if err != nil {
					return nil, fmt.Errorf("lab %s: metrics[%d]: %w", l.Name, i, err)
				}
				out[i][k] += spec.Sum(page)
			}
		}
	}
	return out, nil
}

// settles limits the wait for metrics to show the traffic that has ended.
const settles = 3 * time.Second

// Judge compares the lab's metrics with those before the traffic. It waits for metrics that are not yet as expected.
func (l *Lab) Judge(ctx context.Context, s State, before Values) (out []record.Expectation, err error) {
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	for {
		after, err := l.Values(context.WithoutCancel(ctx), s)
		if err != nil {
			return nil, err
		}
		out = out[:0]
		for i, m := range l.Metrics {
			out = append(out, m.judge(before[i], after[i]))
		}
		missed := slices.ContainsFunc(out, func(e record.Expectation) bool { return !e.OK })
		if !missed || !pause.For(ctx, 100*time.Millisecond) {
			return out, nil
		}
	}
}

func (m *Metric) judge(before, after [2]float64) record.Expectation {
	v, what := after[0], m.Name+" of pods "+m.Pods
	if !m.Now {
		v, what = v-before[0], "growth of "+what
	}
	if m.Per != "" {
		d := after[1] - before[1]
		if what += " for each " + m.Per; d > 0 {
			v /= d
		}
	}
	e := record.Expectation{What: what, Expected: fmt.Sprintf("%g or more", m.AtLeast), Found: fmt.Sprintf("%.4g", v),
		OK: v >= m.AtLeast}
	if m.AtMost != nil {
		e.Expected = fmt.Sprintf("%g to %g", m.AtLeast, *m.AtMost)
		e.OK = e.OK && v <= *m.AtMost
	}
	return e
}

// Probe is a request to a port of each pod with some labels, and the status of its answer.
type Probe struct {
	What    string            `json:"what"`
	Pods    string            `json:"pods"`
	Port    string            `json:"port"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Status  int               `json:"status"`
}

// Probe sends the lab's probes.
func (l *Lab) Probe(ctx context.Context, s State) (out []record.Expectation, err error) {
	for i, x := range l.Probes {
		pods, err := s.podsWith(x.Pods)
		if err != nil {
			return nil, fmt.Errorf("lab %s: probes[%d].pods: %w", l.Name, i, err)
		}
		e := record.Expectation{What: x.What, Expected: fmt.Sprintf("status %d", x.Status),
			Found: "no pod with labels " + x.Pods}
		for _, p := range pods {
			status, err := x.ask(ctx, p.ports[x.Port])
			if e.Found, e.OK = fmt.Sprintf("status %d", status), status == x.Status; err != nil {
				e.Found = err.Error()
			}
			if !e.OK {
				break
			}
		}
		out = append(out, e)
	}
	return out, nil
}

func (x *Probe) ask(ctx context.Context, at string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+cmp.Or(x.Path, "/v1/completions"),
		strings.NewReader(x.Body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range x.Headers {
		req.Header.Set(name, value)
	}
	resp, err := get(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, err
}

// get sends a request on a connection of its own.
func get(req *http.Request) (*http.Response, error) {
	return (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
}
