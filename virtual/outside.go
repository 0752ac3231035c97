package virtual

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	content "github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// outside is the network of a picker: the addresses and names that it can call.
type outside struct {
	servers  map[string]*server // by all their addresses, with or without a sidecar
	names    plan.Services
	manager  string // address of a KV-Cache Manager
	frontend string // address of a Dynamo frontend
}

func (x *outside) open(of *pool) {
	x.servers, x.manager = map[string]*server{}, fmt.Sprintf("10.%d.255.1:8080", of.Index)
	x.frontend = fmt.Sprintf("10.%d.255.2:8000", of.Index)
	for _, sv := range of.servers {
		host, _, _ := strings.Cut(sv.endpoint, ":")
		x.servers[sv.endpoint], x.servers[plan.JoinPort(host, sv.Port)] = sv, sv
		if sv.AlsoPort != 0 {
			x.servers[plan.JoinPort(host, sv.AlsoPort)] = sv
		}
	}
	x.names = of.Services(x.manager, x.frontend, of.servers[0].endpoint)
}

// reach finds the part at the address of a URL: the KV-Cache Manager or the Dynamo frontend, by its name, or a model
// server.
func (x *outside) reach(u *url.URL) (named string, sv *server, err error) {
	at := u.Host
	if u.Port() == "" {
		at = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if to := x.names.Address(at); to != "" {
		at = to
	}
	sv = x.servers[at]
	for _, name := range []string{plan.ManagerName, plan.FrontendName} {
		if x.names[name] == at {
			named = name
		}
	}
	switch {
	case named == "" && sv == nil:
		return "", nil, fmt.Errorf("connection refused: nobody listens on %s in virtual time, where names are %s", at,
			strings.Join(slices.Sorted(maps.Keys(x.names)), ", "))
	case u.Scheme != "http":
		return "", nil, fmt.Errorf("%s does not speak TLS", at)
	}
	return named, sv, nil
}

// answer answers a plug-in's call.
func (x *outside) answer(r *request, n *picker.Need) picker.Answer {
	a := picker.AnswerTo(n)
	if x := r.pool.predicting; x != nil && n.Key == dataproducer.KeyPredict {
		x.answer(n, &a)
		return a
	}
	u, err := url.Parse(n.URL)
	if err != nil {
		a.Err = err
		return a
	}
	named, _, err := x.reach(u)
	switch {
	case err != nil:
		a.Err = err
	case named == plan.FrontendName && n.Key == plugins.KeyRoute:
		r.pool.frontend.route(r, n, &a)
	case named == plan.ManagerName && n.Key == plugins.KeyKVScore:
		a.Value, a.Err = r.pool.kv.scores(r)
	case named == "" && n.Key == dataproducer.KeyRender: // a renderer uses the model server's tokenizer
		a.Prompts = []content.Prompt{content.TokenPrompt(r.promptTokens())}
	default:
		a.Err = epp.ErrNoPage
	}
	return a
}

// errAbsent is the error of a page of a server that refuses connections.
var errAbsent = errors.New("connection refused")

// page returns a server's page for a data source.
func (k *picking) page(t *epp.Target, source int) (metrics.Page, error) {
	src := &k.m.Sources()[source]
	_, sv, err := k.pool.outside.reach(&url.URL{Scheme: src.Scheme, Host: src.Address(t)})
	switch {
	case err != nil:
		return nil, err
	case sv == nil:
		return nil, epp.ErrNoPage
	case sv.absent():
		return nil, errAbsent
	case src.Path == "/health" && sv.core.Dead():
		return nil, epp.ErrDead
	case src.Path == "/health":
		return nil, nil
	case src.Path != "/metrics":
		return nil, epp.ErrNoPage
	}
	return sv.page(source, k.samples[source]), nil
}
