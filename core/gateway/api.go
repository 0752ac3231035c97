package gateway

import (
	"errors"
	"regexp"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// The API groups of the Gateway API, and of its policies in Envoy Gateway.
const (
	Group      = "gateway.networking.k8s.io"
	GroupEnvoy = "gateway.envoyproxy.io"
)

// Class is a GatewayClass.
type Class struct {
	objects.Meta
	Controller string `json:"controllerName"`
	Parameters inert  `json:"parametersRef"`
	Comment    string `json:"description"`
}

// Gateway holds the fields of a Gateway that are checked or served.
type Gateway struct {
	objects.Meta
	Class            string         `json:"gatewayClassName"`
	Listeners        []Listener     `json:"listeners" max:"64"`
	Addresses        []Address      `json:"addresses" max:"16"`
	Infrastructure   Infrastructure `json:"infrastructure"`
	AllowedListeners inert          `json:"allowedListeners"`
	TLS              inert          `json:"tls"`
	DefaultScope     inert          `json:"defaultScope"`

	At strictyaml.Value `json:"."`

	made bool // made from a proxy's configuration
}

// Address is an address that a Gateway requests.
type Address struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Infrastructure configures the proxies of a Gateway. It has no effect here.
type Infrastructure struct {
	Labels      inert      `json:"labels"`
	Annotations inert      `json:"annotations"`
	Parameters  *ObjectRef `json:"parametersRef"`
}

// Listener is one listener of a Gateway.
type Listener struct {
	Name     string         `json:"name"`
	Hostname string         `json:"hostname"`
	Port     int            `json:"port" min:"1" max:"65535"`
	Protocol string         `json:"protocol"`
	TLS      *ListenerTLS   `json:"tls"`
	Allowed  *AllowedRoutes `json:"allowedRoutes"`

	At strictyaml.Value `json:"."`
}

// ListenerTLS says how an HTTPS listener terminates TLS.
type ListenerTLS struct {
	Mode         string            `json:"mode" oneof:"Terminate,Passthrough"`
	Certificates []ObjectRef       `json:"certificateRefs" max:"64"`
	Options      map[string]string `json:"options"`
	Validation   inert             `json:"frontendValidation"`

	At strictyaml.Value `json:"."`
}

// AllowedRoutes says which routes may attach to a listener.
type AllowedRoutes struct {
	Namespaces *RouteNamespaces `json:"namespaces"`
	Kinds      []RouteKind      `json:"kinds" max:"8"`
}

// RouteNamespaces are the namespaces whose routes may attach.
type RouteNamespaces struct {
	From     string           `json:"from" oneof:"All,Selector,Same,None"`
	Selector strictyaml.Value `json:"selector"`
}

// RouteKind names a kind with its group, for a listener's allowedRoutes.
type RouteKind struct {
	Group *string `json:"group"`
	Kind  string  `json:"kind"`
}

// ObjectRef names another object. A nil group is the field's own default.
type ObjectRef struct {
	Group     *string `json:"group"`
	Kind      string  `json:"kind"`
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`

	At strictyaml.Value `json:"."`
}

// HTTPRoute holds the fields of an HTTPRoute that are checked or served.
type HTTPRoute struct {
	objects.Meta
	Parents      []ParentRef `json:"parentRefs" max:"32"`
	Hostnames    []string    `json:"hostnames" max:"16"`
	Rules        []Rule      `json:"rules" max:"16"`
	DefaultScope inert       `json:"useDefaultGateways"`

	At strictyaml.Value `json:"."`

	made bool // made from a proxy's configuration
}

// ParentRef names the Gateway, and optionally the listener, to which a route attaches.
type ParentRef struct {
	ObjectRef
	Section string `json:"sectionName"`
	Port    int    `json:"port" min:"1" max:"65535"`
}

// Rule is one rule of an HTTPRoute.
type Rule struct {
	Name     string       `json:"name"`
	Matches  []Match      `json:"matches" max:"64"`
	Filters  []Filter     `json:"filters" max:"16"`
	Backends []BackendRef `json:"backendRefs" max:"16"`
	Timeouts *Timeouts    `json:"timeouts"`
	Retry    *Retry       `json:"retry"`
	Sessions inert        `json:"sessionPersistence"`

	At strictyaml.Value `json:"."`
}

// Match holds conditions for a request. All of them must be true.
type Match struct {
	Path    *PathMatch   `json:"path"`
	Headers []ValueMatch `json:"headers" max:"16"`
	Query   []ValueMatch `json:"queryParams" max:"16"`
	Method  string       `json:"method" oneof:"GET,HEAD,POST,PUT,DELETE,CONNECT,OPTIONS,TRACE,PATCH"`

	At strictyaml.Value `json:"."`
}

// The ways to compare a path or a value.
const (
	Exact      = "Exact"
	PathPrefix = "PathPrefix"
	Regex      = "RegularExpression"
)

// PathMatch is a condition for a request's path.
type PathMatch struct {
	Type  string `json:"type" oneof:"Exact,PathPrefix,RegularExpression"`
	Value string `json:"value"`

	At strictyaml.Value `json:"."`
}

// ValueMatch is a condition for a header or a query parameter.
type ValueMatch struct {
	Type  string `json:"type" oneof:"Exact,RegularExpression"`
	Name  string `json:"name"`
	Value string `json:"value"`

	At strictyaml.Value `json:"."`
}

// Filter changes requests or answers, or answers requests itself.
type Filter struct {
	Type            string           `json:"type" oneof:"RequestHeaderModifier,ResponseHeaderModifier,RequestMirror,RequestRedirect,URLRewrite,ExtensionRef,CORS,ExternalAuth"`
	RequestHeaders  *HeaderModifier  `json:"requestHeaderModifier"`
	ResponseHeaders *HeaderModifier  `json:"responseHeaderModifier"`
	Mirror          *Mirror          `json:"requestMirror"`
	Redirect        *Redirect        `json:"requestRedirect"`
	Rewrite         *Rewrite         `json:"urlRewrite"`
	Extension       *ObjectRef       `json:"extensionRef"`
	CORS            strictyaml.Value `json:"cors"`
	Auth            strictyaml.Value `json:"externalAuth"`

	At strictyaml.Value `json:"."`
}

// HeaderModifier sets, adds and removes headers.
type HeaderModifier struct {
	Set    []HeaderValue `json:"set" max:"16"`
	Add    []HeaderValue `json:"add" max:"16"`
	Remove []string      `json:"remove" max:"16"`

	At strictyaml.Value `json:"."`
}

// HeaderValue is the value that a modifier gives to a header.
type HeaderValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Variables says that the value contains Envoy's variables (%REQ(name)% …). Such a header is added only where the
	// message has none.
	Variables bool

	At strictyaml.Value `json:"."`
}

// Mirror sends a copy of requests to another backend and drops its answers.
type Mirror struct {
	Backend  BackendRef `json:"backendRef"`
	Percent  *int       `json:"percent" min:"0" max:"100"`
	Fraction *Fraction  `json:"fraction"`

	At strictyaml.Value `json:"."`
}

// Fraction is a share of requests.
type Fraction struct {
	Numerator   int  `json:"numerator" min:"0"`
	Denominator *int `json:"denominator" min:"1"`
}

// Redirect answers with another URL.
type Redirect struct {
	Scheme   string        `json:"scheme" oneof:"http,https"`
	Hostname string        `json:"hostname"`
	Path     *PathModifier `json:"path"`
	Port     int           `json:"port" min:"1" max:"65535"`
	Status   int           `json:"statusCode"`

	At strictyaml.Value `json:"."`
}

// Rewrite changes a request's host or path on its way to the backend.
type Rewrite struct {
	Hostname string        `json:"hostname"`
	Path     *PathModifier `json:"path"`

	At strictyaml.Value `json:"."`
}

// The ways to change a path.
const (
	ReplaceFullPath    = "ReplaceFullPath"
	ReplacePrefixMatch = "ReplacePrefixMatch"
)

// PathModifier replaces a path, or the prefix that matched.
type PathModifier struct {
	Type   string  `json:"type" oneof:"ReplaceFullPath,ReplacePrefixMatch"`
	Full   *string `json:"replaceFullPath"`
	Prefix *string `json:"replacePrefixMatch"`

	At strictyaml.Value `json:"."`
}

// BackendRef is a backend of a rule, with its weight among the others.
type BackendRef struct {
	ObjectRef
	Port    int      `json:"port" min:"1" max:"65535"`
	Weight  *int     `json:"weight" min:"0" max:"1000000"`
	Filters []Filter `json:"filters" max:"16"`
	// Picker is document 002's extensionRef: the endpoint picker in the route.
	Picker *PickerRef `json:"extensionRef"`
}

// PickerRef is document 002's backendRefs[].extensionRef.
type PickerRef struct {
	ObjectRef
	Failure string `json:"failureMode" oneof:"FailClose,FailOpen"`
}

// Timeouts are a rule's timeouts. A nil field is not set, and 0 turns the timeout off.
type Timeouts struct {
	Request *Duration `json:"request"`
	Backend *Duration `json:"backendRequest"`

	At strictyaml.Value `json:"."`
}

// Retry is a rule's retry stanza (experimental channel).
type Retry struct {
	Codes    []int     `json:"codes"`
	Attempts *int      `json:"attempts" min:"0"`
	Backoff  *Duration `json:"backoff"`

	At strictyaml.Value `json:"."`
}

// Grant is a ReferenceGrant. It lets objects in other namespaces refer to objects in this one.
type Grant struct {
	objects.Meta
	From []GrantFrom `json:"from" max:"16"`
	To   []GrantTo   `json:"to" max:"16"`

	At strictyaml.Value `json:"."`
}

// GrantFrom names the objects that may refer.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`

	At strictyaml.Value `json:"."`
}

// GrantTo names the objects to which they may refer; without a name, all of the kind.
type GrantTo struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`

	At strictyaml.Value `json:"."`
}

// Duration is a duration in the Gateway API's syntax (GEP-2257): up to four numbers with h, m, s or ms.
type Duration time.Duration

var durationForm = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// UnmarshalText parses that syntax.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || !durationForm.Match(text) {
		return errors.New("not " + d.Expected())
	}
	*d = Duration(v)
	return nil
}

// Expected describes a duration.
func (Duration) Expected() string { return "a duration such as 10s, 500ms or 1m30s" }

// inert is a valid field without effect here. A warning says so once.
type inert = strictyaml.Inert
