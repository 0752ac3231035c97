package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// SecurityPolicy is Envoy Gateway's SecurityPolicy, with its API keys only.
type SecurityPolicy struct {
	objects.Meta
	Targets
	Keys   *apiKeyAuth `json:"apiKeyAuth"`
	CORS   inert       `json:"cors"`
	Basic  inert       `json:"basicAuth"`
	JWT    inert       `json:"jwt"`
	OIDC   inert       `json:"oidc"`
	Ext    inert       `json:"extAuth"`
	Author inert       `json:"authorization"`

	At strictyaml.Value `json:"."`
}

type apiKeyAuth struct {
	Credentials []ObjectRef `json:"credentialRefs" max:"16"`
	Extract     []KeySource `json:"extractFrom" max:"16"`
	ForwardID   string      `json:"forwardClientIDHeader"`
	Sanitize    bool        `json:"sanitize"`
}

// KeySource says where a request may have its key. The first source that the request has counts. In an Authorization
// header the word Bearer is not part of the key.
type KeySource struct {
	Headers []string `json:"headers" max:"16"`
	Params  []string `json:"params" max:"16"`
	Cookies []string `json:"cookies" max:"16"`
}

func (s KeySource) is(x KeySource) bool {
	return slices.Equal(s.Headers, x.Headers) && slices.Equal(s.Params, x.Params) && slices.Equal(s.Cookies, x.Cookies)
}

// APIKeys hold the keys of a route. A request without one of them gets a 401.
type APIKeys struct {
	// Secrets map clients' names to keys.
	Secrets []*Secret
	From    []KeySource
	// ForwardID is the header in which the backend gets the client's name; "" sends none.
	ForwardID string
	// Sanitize removes the key from the request.
	Sanitize bool
}

func (x *SecurityPolicy) check(v strictyaml.Value) {
	if len(x.all()) == 0 {
		v.Get("targetRefs").Fail("there are none", "what the policy is about: an HTTPRoute or a Gateway", "")
	}
	k, at := x.Keys, v.Get("apiKeyAuth")
	if k == nil {
		return
	}
	if len(k.Credentials) == 0 {
		at.Get("credentialRefs").Fail("there are none", "the Secrets with the keys, by the names of their clients", "")
	}
	if !slices.ContainsFunc(k.Extract,
		func(s KeySource) bool { return len(s.Headers)+len(s.Params)+len(s.Cookies) > 0 }) {
		at.Get("extractFrom").Fail("there are none", "where the key is: headers, params or cookies", "")
	}
	for i, s := range k.Extract {
		for _, h := range s.Headers {
			form(at.Get("extractFrom").At(fmt.Sprintf("[%d].headers", i)), h, headerForm, 256, "the names of headers")
		}
	}
}

// secure makes a route demand keys, by the policy for it or for its Gateway. If the keys cannot be checked, the route
// answers every request with 500.
func (b *builder) secure(to *Route, kind string, m *objects.Meta, many int) {
	for i := range b.SecurityPolicies {
		x := &b.SecurityPolicies[i]
		if to.Keys != nil || x.Keys == nil || !x.about(x.Namespace, kind, m, many) {
			continue
		}
		to.Keys = &APIKeys{From: x.Keys.Extract, ForwardID: x.Keys.ForwardID, Sanitize: x.Keys.Sanitize}
		for _, ref := range x.Keys.Credentials {
			namespace := cmp.Or(ref.Namespace, x.Namespace)
			s := b.Secret(namespace, ref.Name)
			if s == nil || !b.granted(GroupEnvoy, "SecurityPolicy", x.Namespace, "", "Secret", namespace, ref.Name) {
				b.note(ref.At.Problem(fmt.Sprintf("there is no Secret %s/%s, or no ReferenceGrant for it", namespace,
					ref.Name), "the keys by the names of their clients", "requests are answered with 500").Error())
				to.Shares, to.Redirect = []Share{{Weight: 1}}, nil
				continue
			}
			to.Keys.Secrets = append(to.Keys.Secrets, s)
		}
	}
}

// Allow reports whether a request has one of the keys. A nil APIKeys allows every request.
func (k *APIKeys) Allow(r Request) bool {
	if k == nil {
		return true
	}
	given, found := k.key(r), false
	k.Each(func(_ string, key []byte) { found = found || given != "" && bytes.Equal(key, []byte(given)) })
	return found
}

// key returns the first key in a request, or "" where it has none.
func (k *APIKeys) key(r Request) string {
	_, query, _ := strings.Cut(r.Target, "?")
	for _, s := range k.From {
		for _, name := range s.Headers {
			if v := r.Headers.Get(strings.ToLower(name)); v != "" {
				return strings.TrimPrefix(v, "Bearer ")
			}
		}
		for _, name := range s.Params {
			if v, _ := first(query, name); v != "" {
				return v
			}
		}
		for _, name := range s.Cookies {
			if v, _ := picker.Cookie(r.Headers, name); v != "" {
				return v
			}
		}
	}
	return ""
}

// Keys returns all API keys of a Gateway's routes together, or nil where no route has any.
func (g *Served) Keys() *APIKeys {
	var out *APIKeys
	for r := range g.routes {
		if r.Keys == nil {
			continue
		}
		out = cmp.Or(out, &APIKeys{})
		for _, s := range r.Keys.Secrets {
			if !slices.Contains(out.Secrets, s) {
				out.Secrets = append(out.Secrets, s)
			}
		}
		for _, s := range r.Keys.From {
			if !slices.ContainsFunc(out.From, s.is) {
				out.From = append(out.From, s)
			}
		}
		out.ForwardID, out.Sanitize = cmp.Or(out.ForwardID, r.Keys.ForwardID), out.Sanitize || r.Keys.Sanitize
	}
	return out
}

// Each calls a function for every client, with the client's key.
func (k *APIKeys) Each(visit func(client string, key []byte)) {
	for _, s := range k.Secrets {
		for _, name := range slices.Sorted(maps.Keys(s.data)) {
			visit(name, s.data[name])
		}
	}
}
