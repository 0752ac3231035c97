package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
)

// ServerFault is a fault that model servers inject into some of the requests. The first fault of the list that selects
// a request counts.
type ServerFault struct {
	// What goes wrong, several separated by semicolons: refuse, reset, reset-after=N, status=CODE, delay=DURATION,
	// die-in-prefill, end-before-part2, no-body, lose-kv, stall or stall=N.
	Fault string `json:"fault"`
	// The part of all requests that it happens to, drawn by the request's id and so the same in every run. Without rate
	// and requests it happens to all. Takes a percentage such as 5%, or a number such as 0.05.
	Rate Share `json:"rate"`
	// The numbers of the requests that it happens to, besides those drawn: 1 is the first that the workload sends.
	Requests []int `json:"requests" max:"10000"`
	// The numbers of the only servers where it happens, the first being 0; all if left out.
	Servers []int `json:"servers" max:"16384"`
}

// Share is a part of a whole, above 0 and up to 1.
type Share float64

const shareHelp = "a share above 0 such as 5% or 0.05, at most 100%"

// ParseShare reads a percentage, or a number up to 1.
func ParseShare(text string) (Share, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f > 0 && f <= 1) {
		return 0, fmt.Errorf("%q is not %s", text, shareHelp)
	}
	return Share(f), nil
}

// UnmarshalText reads what ParseShare reads.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}

// Expected describes a valid share, for errors.
func (Share) Expected() string { return shareHelp }

func (s *checker) checkFaults(p *Pool, path string) {
	if len(p.ModelServer.Faults) > 0 && len(p.Endpoints) > 0 {
		s.bad(path, "given beside endpoints",
			"simulated model servers (replicas): external ones do not inject faults")
	}
	for i := range p.ModelServer.Faults {
		f, at := &p.ModelServer.Faults[i], fmt.Sprintf("%s[%d]", path, i)
		if strings.TrimSpace(f.Fault) == "" {
			s.bad(at+".fault", "missing", "what goes wrong, such as status=503 or reset")
		} else if _, err := lifecycle.ParseFault(f.Fault); err != nil {
			s.bad(at+".fault", err.Error(), "")
		}
		s.numbers(at+".requests", f.Requests, 1, s.Workload.Requests, "a request of the workload")
		if len(p.Endpoints) == 0 {
			s.numbers(at+".servers", f.Servers, 0, p.Servers()-1, "a server of the pool")
		}
	}
}

// faults compiles the faults of a pool's model servers. It fails only if a fault was changed after the scenario was
// read.
func (s *Scenario) faults(p *Pool) (lifecycle.Faults, error) {
	out := lifecycle.Faults{Seed: s.Seed}
	for i := range p.ModelServer.Faults {
		f := &p.ModelServer.Faults[i]
		fault, err := lifecycle.ParseFault(f.Fault)
		if err != nil {
			return out, fmt.Errorf("pool %s: modelServer.faults[%d].fault: %w", p.Name, i, err)
		}
		r := lifecycle.FaultRule{Fault: fault, Share: float64(f.Rate), Requests: map[string]bool{},
			Servers: map[int]bool{}}
		for _, n := range f.Requests {
			r.Requests[record.RequestID(s.Seed, n)] = true
		}
		for _, n := range f.Servers {
			r.Servers[n] = true
		}
		out.Rules = append(out.Rules, r)
	}
	return out, nil
}
