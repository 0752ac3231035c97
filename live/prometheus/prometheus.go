// Package prometheus asks a Prometheus server, by its HTTP API. Begin with New.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report/diagnosis"
)

// Server is a Prometheus server.
type Server struct {
	base   *url.URL
	client *http.Client
}

// Bounds of an answer: its size in bytes, its series, and the time until it is whole.
const (
	maxBytes  = 16 << 20
	maxSeries = 10_000
	patience  = 20 * time.Second
)

// New returns the server at an address such as http://127.0.0.1:9091, or one below a path.
func New(address string) (*Server, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("found an address that is no URL; expected one such as http://127.0.0.1:9091")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("found %.200q; expected http:// or https:// with a host, such as http://127.0.0.1:9091",
			u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("found %.200q; expected no user, query or fragment; kubectl port-forward reaches a "+
			"Prometheus that needs them", u.Redacted())
	}
	return &Server{u, &http.Client{Timeout: patience, CheckRedirect: serve.Stay}}, nil
}

// answer is the form of Prometheus' answers.
type answer struct {
	Status, ErrorType, Error string
	Data                     struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  point
			Values []point
		}
	}
}

// point is a time and a value.
type point struct {
	at, value float64
	given     bool
}

// UnmarshalJSON reads [seconds, "value"].
func (p *point) UnmarshalJSON(data []byte) error {
	var text string
	pair := [2]any{&p.at, &text}
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	p.value, p.given = v, true
	return err
}

// Instant implements diagnosis.Source: it returns the result of a query at a time.
func (s *Server) Instant(ctx context.Context, query string, at time.Time) ([]diagnosis.Series, error) {
	return s.ask(ctx, "query", url.Values{"query": {query}, "time": {seconds(at)}})
}

// Range implements diagnosis.Source: it returns the results of a query from one time to another, in steps.
func (s *Server) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]diagnosis.Series,
	error) {
	return s.ask(ctx, "query_range", url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}})
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64) }

func (s *Server) ask(ctx context.Context, path string, values url.Values) ([]diagnosis.Series, error) {
	u := s.base.JoinPath("api/v1", path)
	u.RawQuery = values.Encode()
	text, err := serve.Fetch(ctx, s.client, http.MethodGet, u.String(), nil, maxBytes+1)
	var failed *url.Error
	switch {
	case errors.As(err, &failed): // without the query, which is long
		return nil, fmt.Errorf("%s: %w", s.base, failed.Err)
	case err != nil:
		return nil, fmt.Errorf("the query %s: %w", values.Get("query"), err)
	case len(text) > maxBytes:
		return nil, fmt.Errorf("the query %s: its answer has more than %d bytes", values.Get("query"), maxBytes)
	}
	return read(s.base.String(), text)
}

// Parse returns the series of a saved answer to a query.
func Parse(text []byte) ([]diagnosis.Series, error) { return read("it", text) }

// read reads an answer; from names its source.
func read(from string, text []byte) ([]diagnosis.Series, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("%s: the answer has not the form of Prometheus' HTTP API: %w", from, err)
	}
	kinds := []string{"vector", "matrix"}
	switch n := len(a.Data.Result); {
	case a.Status != "success":
		return nil, fmt.Errorf("%s: status %.20q, %.200s", from, a.Status, a.Error)
	case !slices.Contains(kinds, a.Data.ResultType):
		return nil, fmt.Errorf("%s: found a result of type %.20q; expected %s", from, a.Data.ResultType,
			strings.Join(kinds, " or "))
	case n > maxSeries:
		return nil, fmt.Errorf("%s: found %d series; expected at most %d", from, n, maxSeries)
	}
	var out []diagnosis.Series
	for _, r := range a.Data.Result {
		x := diagnosis.Series{Labels: r.Metric}
		for _, p := range append(r.Values, r.Value) {
			if p.given && !math.IsNaN(p.value) {
				x.Times, x.Values = append(x.Times, p.at), append(x.Values, p.value)
			}
		}
		if len(x.Values) > 0 {
			out = append(out, x)
		}
	}
	return out, nil
}
