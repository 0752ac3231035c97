package scenario

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dnsLabel matches the names of InferencePools, and of all parts that are named after them.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// checkKind checks that the file is a scenario of this version.
func (s *checker) checkKind() {
	if s.APIVersion != Version {
		s.bad("apiVersion", found(s.APIVersion), Version)
	}
	if s.Kind != Kind {
		s.bad("kind", found(s.Kind), Kind)
	}
}

// check checks rules between fields, and sets the defaults that depend on other fields.
func (s *checker) check() {
	w := &s.Workload
	if (w.Duration > 0 || len(w.Stages) > 0) && !s.written("workload.requests") {
		w.Requests = maxRequests
	}
	s.checkKind()
	if len(s.Pools) == 0 {
		s.bad("pools", "there are none", "at least one pool")
	}
	names := map[string]int{}
	for i := range s.Pools {
		p := &s.Pools[i]
		path := fmt.Sprintf("pools[%d]", i)
		if first, twice := names[p.Name]; p.Name == "" {
			s.bad(path+".name", "missing", "a name for the pool")
		} else if !dnsLabel.MatchString(p.Name) {
			s.bad(path+".name", fmt.Sprintf("found %.80q", p.Name),
				"a DNS label such as llama-pool: lower-case letters, digits and dashes, 63 at most")
		} else if twice {
			s.bad(path+".name", fmt.Sprintf("%q is also the name of pools[%d]", p.Name, first), "a name of its own")
		}
		names[p.Name] = i
		s.checkPool(p, path)
	}
	s.checkWhere(w, "workload")
	s.checkPorts()
	s.checkRoutes()
	s.checkGRPC()
	if !s.written("workload.timeout") {
		for i := range s.Pools { // as for the hold limit in checkPool
			w.Timeout = max(w.Timeout, 2*time.Duration(s.Pools[i].longestPrefill()))
		}
	}
	w.Prompt.complete()
	known := len(s.problems)
	s.checkAsked(w, "workload")
	if len(s.problems) == known { // otherwise each class repeats the problems
		s.checkClasses()
	}
	s.checkArrivals()
	if len(s.problems) == 0 {
		s.settle()
	}
	if w.peak() > 0 && !s.written("workload.concurrency") {
		w.Concurrency = s.openLoop()
	}
}

// openLoop returns a limit on conversations in flight that never binds: no conversation takes longer than the timeouts
// of its turns and the user's pauses between them.
func (s *Scenario) openLoop() int {
	w := &s.Workload
	turns, think := 1.0, 0.0
	w.each(s, func(own *Workload) {
		turns = max(turns, float64(own.Conversations.Turns.Quantile(1)))
		think = max(think, time.Duration(own.Conversations.ThinkTime.Quantile(1)).Seconds())
	})
	return int(min(float64(w.Requests), math.Ceil(w.peak()*turns*(w.Timeout.Seconds()+think))+1, 1_000_000))
}

func (s *checker) checkPool(p *Pool, path string) {
	add := func(field, found, expected string) { s.bad(path+"."+field, found, expected) }

	s.checkGroups(p, path)
	if p.Replicas > 0 && len(p.Endpoints) > 0 && s.written(path+".replicas") {
		add("replicas", "given beside endpoints",
			"replicas (simulated model servers) or endpoints (someone else's), not both")
	}
	if p.Replicas == 0 && len(p.Endpoints) == 0 {
		p.Replicas = 1
	}
	for i, e := range p.Endpoints {
		if err := CheckEndpoint(e); err != nil {
			add(fmt.Sprintf("endpoints[%d]", i), err.Error(), "HOST:PORT such as 127.0.0.1:8000")
		}
	}
	if p.EPP.Replicas == 0 {
		s.checkService(p, path)
	}
	if p.Flow == Held {
		if p.Sidecar != NoSidecar {
			add("sidecar", fmt.Sprintf("%q with flow held", p.Sidecar),
				"sidecar: none, or flow: plain (a sidecar reads the whole request before it sends it on, so that "+
					"both would wait for ever)")
		}
		if p.EPP.BodyMode != FullDuplexStreamed {
			add("epp.bodyMode", fmt.Sprintf("%q with flow held", p.EPP.BodyMode),
				"FULL_DUPLEX_STREAMED (no other mode lets the picker send part 2 later), or flow: plain")
		}
		if m := p.EPP.ResponseBodyMode; m != "" && m != ResponseFullDuplex {
			add("epp.responseBodyMode", fmt.Sprintf("%q with flow held", m),
				"FULL_DUPLEX_STREAMED (the picker waits for the first token of the response), or flow: plain")
		}
	}
	switch {
	case p.EPP.BodyMode == Buffered && p.EPP.ResponseBodyMode == ResponseFullDuplex:
		add("epp.responseBodyMode", `"FULL_DUPLEX_STREAMED" with bodyMode BUFFERED`, "STREAMED, BUFFERED or NONE")
	case p.EPP.BodyMode != Buffered && p.EPP.ProcessingTimeout > 0:
		add("epp.processingTimeout", fmt.Sprintf("%s with bodyMode %s", p.EPP.ProcessingTimeout, p.EPP.BodyMode),
			"bodyMode: BUFFERED (Envoy waits for no answer in the other), or epp.deadline, which is the picker's own "+
				"limit")
	}
	if service := p.EPP.ServiceTime; s.written(path+".epp.workers") && service.Quantile(1) == 0 {
		add("epp.workers", "given without serviceTime", "serviceTime beside it, such as 2ms")
	}
	s.checkDisaggregation(p, path)
	s.checkKVCache(p, path)
	s.checkDynamo(p, path)
	for _, k := range p.kinds(path) {
		s.checkHardware(p, &k)
	}
	s.checkFaults(p, path+".modelServer.faults")
	s.checkIncidents(p, path+".incidents")
	s.checkLifecycles(p, path)
	longest := time.Duration(p.longestPrefill())
	if !s.written(path+".epp.holdLimit") && p.EPP.HoldLimit < 2*longest {
		p.EPP.HoldLimit = 2 * longest // a default must not cut a prefill that the scenario asks for
	}
}

// CheckEndpoint returns an error unless endpoint is HOST:PORT.
func CheckEndpoint(endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: port %q is not between 1 and 65535", endpoint, port)
	}
	if host == "" || len(host) > 253 || strings.ContainsAny(host, " \t\r\n/@") {
		return fmt.Errorf("%q: %q is not a host name or address", endpoint, host)
	}
	return nil
}

func found(text string) string {
	if text == "" {
		return "missing"
	}
	return fmt.Sprintf("found %q", text)
}

func countTrue(list ...bool) int {
	n := 0
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}
