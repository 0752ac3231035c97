package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/web"
)

// actions returns the page's actions on a live run of s: changes of its load, and the incidents that the scenario
// allows.
func actions(s *scenario.Scenario) []web.Action {
	out := []web.Action{{Name: "load", What: "Sends more of the scenario's requests.", Number: "requests a second",
		For: true}}
	if slices.ContainsFunc(s.Pools, func(p scenario.Pool) bool {
		return len(p.Endpoints) == 0 && p.ModelServer.Batching == scenario.Independent
	}) {
		out = append(out, web.Action{Name: "prefill",
			What:   "Each prompt takes a random time in this range, at every server of the pool.",
			Number: "seconds, from", To: "to"})
	}
	for _, a := range []web.Action{
		{Name: string(scenario.AddServer), What: "Servers join, and serve once they have started.", Groups: true,
			Number: "servers"},
		{Name: string(scenario.DrainServer), What: "A server finishes its requests, gets no new ones and leaves.",
			Servers: true},
		{Name: string(scenario.Crash), What: "The engine of a model server dies.", Servers: true, For: true},
		{Name: string(scenario.SlowDown), What: "The steps of a model server take this many times as long.",
			Servers: true, For: true, Number: "factor"},
		{Name: string(scenario.SlowMetrics),
			What: "A model server takes this long to serve its metrics; the picker waits a second.", Servers: true,
			For: true, Number: "seconds"},
		{Name: string(scenario.LoseTransfers),
			What: "KV caches on their way to or from a server are lost; with a time, also those that " +
				"begin within it.",
			Servers: true, For: true},
		{Name: string(scenario.LoseRank),
			What: "An accelerator of a tensor-parallel group fails, and the group with it.", Servers: true, For: true},
		{Name: string(scenario.RestartSidecar),
			What: "The sidecar's requests break off, and it loses its sessions.", Servers: true},
		{Name: string(scenario.LoseIndex), What: "The endpoint picker's index of KV blocks is empty."},
		{Name: string(scenario.RestartEPP),
			What: "The endpoint picker stops, and starts again: at once, or after a time.", For: true},
	} {
		for i := range s.Pools {
			p := &s.Pools[i]
			x := incident(web.Act{Name: a.Name, Number: 2})
			if x.What == scenario.AddServer && len(p.Groups) > 0 {
				x.Group = p.Groups[0].Name
			}
			if s.CheckIncident(p, x) == nil &&
				(a.Name != string(scenario.AddServer) && a.Name != string(scenario.DrainServer) || p.Lives()) {
				a.Breaks = a.Name != string(scenario.AddServer) && a.Name != string(scenario.DrainServer)
				out = append(out, a)
				break
			}
		}
	}
	return out
}

func incident(a web.Act) *scenario.Incident {
	x := &scenario.Incident{What: scenario.IncidentKind(a.Name), Server: a.Server, For: seconds(a.For)}
	switch x.What {
	case scenario.SlowDown:
		x.Factor = a.Number
	case scenario.SlowMetrics:
		x.Delay = seconds(a.Number)
	case scenario.AddServer:
		x.Group, x.Count = a.Group, int(max(1, min(a.Number, 1024)))
	}
	if !x.What.OfServer() {
		x.Server = 0
	}
	return x
}

// seconds converts a number of seconds from outside.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, 240*3600) * float64(time.Second))
}

// Limits of requests by hand.
const (
	maxAnswer  = 64 << 10
	sendTime   = 10 * time.Minute
	loadTime   = 10 * time.Second
	maxHeaders = 64
)

// act applies an action of the page to a stack, and returns a sentence about the effect.
func act(ctx, asking context.Context, st *stack.Stack, a web.Act) (string, error) {
	switch a.Name {
	case "send":
		return sendByHand(asking, st.Gateway.Addr, a)
	case "load":
		during := seconds(a.For)
		during = cmp.Or(during, loadTime)
		failed := make(chan error, 1)
		go func() { failed <- st.More(ctx, a.Number, during) }()
		select {
		case err := <-failed:
			return "All have ended.", err
		case <-time.After(100 * time.Millisecond): // a refusal comes within this time
			return fmt.Sprintf("Sending %g a second for %s.", a.Number, during), nil
		}
	case "prefill":
		low, high := seconds(a.Number), seconds(max(a.Number, a.To))
		return fmt.Sprintf("A prompt takes %s to %s from now on.", low, high), st.Prefill(a.Pool, low, high)
	case "configure":
		return "In force.", st.Configure(a.Pool, a.Body)
	}
	if err := st.Happen(ctx, a.Pool, *incident(a)); err != nil {
		return "", err
	}
	if a.For > 0 {
		return fmt.Sprintf("It has begun, for %s.", seconds(a.For)), nil
	}
	return "It has happened.", nil
}

// sendByHand sends a request to the gateway and returns the answer.
func sendByHand(ctx context.Context, gateway string, a web.Act) (string, error) {
	if !strings.HasPrefix(a.Path, "/") || len(a.Headers) > maxHeaders {
		return "", errors.New("expected a path that begins with /, and at most 64 headers")
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+gateway+a.Path, strings.NewReader(a.Body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range a.Headers {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\n\n%s", resp.Status, strings.ToValidUTF8(string(body), "\ufffd")), nil
}
