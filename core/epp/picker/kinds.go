package picker

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Kinds of plug-ins without an interface here (Registration.Kind). The driver or another plug-in calls them.
const (
	KindFairness   = "fairness policy"
	KindOrdering   = "ordering policy"
	KindUsageLimit = "usage limit policy"
	KindEviction   = "eviction policy"
	KindDecider    = "decider"
	KindSource     = "data source"
	KindExtractor  = "extractor"
)

// kind is a role that a plug-in can have.
type kind struct {
	name  string
	iface reflect.Type // nil if only a Registration states the kind
	place string       // where the configuration lists it
}

const (
	inProfiles = "the plugins of a scheduling profile"
	byItself   = "plugins alone: it acts wherever it is declared"
)

var kinds = []kind{
	{"filter", reflect.TypeFor[Filter](), inProfiles},
	{"scorer", reflect.TypeFor[Scorer](), inProfiles},
	{"picker", reflect.TypeFor[EndpointPicker](), inProfiles},
	{"profile handler", reflect.TypeFor[ProfileHandler](), byItself},
	{"request header processor", reflect.TypeFor[HeaderProcessor](), byItself},
	{"plug-in that changes what scorers count", reflect.TypeFor[Weigher](), byItself},
	{"request body reader", reflect.TypeFor[BodyReader](), byItself},
	{"prompt reader", reflect.TypeFor[PromptReader](), byItself},
	{"screener", reflect.TypeFor[Screener](), byItself},
	{"data producer", reflect.TypeFor[Producer](), byItself},
	{"plug-in that asks outside services", reflect.TypeFor[Querier](), byItself},
	{"plug-in that sends to outside services", reflect.TypeFor[Sender](), byItself},
	{"admitter", reflect.TypeFor[Admitter](), byItself},
	{"pre-request plug-in", reflect.TypeFor[PreRequest](), byItself},
	{"plug-in that follows decisions", reflect.TypeFor[Committer](), byItself},
	{"plug-in that follows the ends of requests", reflect.TypeFor[Releaser](), byItself},
	{"response header processor", reflect.TypeFor[ResponseHeader](), byItself},
	{"response body processor", reflect.TypeFor[ResponseBody](), byItself},
	{"plug-in that follows endpoints", reflect.TypeFor[EndpointObserver](), byItself},
	{"saturation detector", reflect.TypeFor[SaturationDetector](), "flowControl.saturationDetector"},
	{"request parser", reflect.TypeFor[RequestParser](), "requestHandler.parsers"},
	{KindSource, reflect.TypeFor[MetricsSource](), "dataLayer.sources"},
	{KindExtractor, reflect.TypeFor[MetricsExtractor](), "the extractors of a data source (dataLayer.sources)"},
	{"discovery", reflect.TypeFor[Discovery](), "dataLayer.discovery"},
	{KindFairness, nil, "fairnessPolicyRef of a priority band (flowControl)"},
	{KindOrdering, nil, "orderingPolicyRef of a priority band (flowControl)"},
	{KindUsageLimit, nil, "flowControl.usageLimitPolicyPluginRef"},
	{KindDecider, nil, "the parameters of its profile handler"},
}

// kindsOf returns the kinds of a plug-in, the most specific first.
func (b *Builder) kindsOf(p Plugin) (out []kind) {
	own := b.reg[p.base().typ].Kind
	for _, k := range kinds {
		if k.iface != nil && reflect.TypeOf(p).Implements(k.iface) || k.name == own {
			out = append(out, k)
		}
	}
	if own != "" && !slices.ContainsFunc(out, func(k kind) bool { return k.name == own }) {
		out = append(out, kind{name: own, place: byItself})
	}
	return out
}

func (b *Builder) is(p Plugin, name string) bool {
	return slices.ContainsFunc(b.kindsOf(p), func(k kind) bool { return k.name == name })
}

// otherInterfaces are further interfaces that a plug-in of some kind may implement.
var otherInterfaces = []kind{
	{"plug-in whose state is in recordings", reflect.TypeFor[StateKeeper](), ""},
	{"plug-in whose data of decisions is in recordings", reflect.TypeFor[DecisionKeeper](), ""},
	{"prefix reader", reflect.TypeFor[PrefixReader](), ""},
	{"reader of answers", reflect.TypeFor[AnswerReader](), ""},
	{"reader of cookies", reflect.TypeFor[CookieReader](), ""},
	{"reader of credentials", reflect.TypeFor[SecretReader](), ""},
	{"profile checker", reflect.TypeFor[ProfileChecker](), ""},
	{"prober", reflect.TypeFor[Prober](), ""},
	{"plug-in that forgets metrics", reflect.TypeFor[MetricsForgetter](), ""},
	{"plug-in that gives reasons", reflect.TypeFor[Reasoner](), ""},
}

// checkShape refuses a plug-in that nothing would ever call, and a plug-in with a method whose signature is wrong. For
// a plug-in that has a kind, a method counts as wrong only if its signature uses types of this package or the right one
// does not.
func (b *Builder) checkShape(p Plugin, at strictyaml.Value) error {
	found := fmt.Sprintf("plugin '%s' (type: %s)", p.Name(), p.base().typ)
	called := len(b.kindsOf(p)) > 0
	for _, k := range slices.Concat(kinds, otherInterfaces) {
		if k.iface == nil || reflect.TypeOf(p).Implements(k.iface) {
			continue
		}
		if method, has, wants := misfit(p, k.iface); method != "" && (!called || ours(has) || !ours(wants)) {
			return typeOf(at).Problem(fmt.Sprintf("%s has the method %s%s", found, method, has),
				fmt.Sprintf("%s%s, which makes it %s", method, wants, article(k.name)), "this one is never called")
		}
	}
	if called {
		return nil
	}
	return typeOf(at).Problem(found+" is of no kind: nothing would ever call it",
		"a type that implements an interface of core/epp/picker, such as Scorer",
		"or a Registration with a Kind, where another plug-in asks it")
}

// misfit returns a method with a wrong signature, if the plug-in has methods of all the interface's names.
func misfit(p Plugin, iface reflect.Type) (name, has, wants string) {
	v := reflect.ValueOf(p)
	for i := range iface.NumMethod() {
		m := iface.Method(i)
		if m.PkgPath != "" || m.Name == "Type" || m.Name == "Name" { // methods of every Plugin
			continue
		}
		own := v.MethodByName(m.Name)
		if !own.IsValid() {
			return "", "", ""
		}
		if own.Type() != m.Type && name == "" {
			name, has, wants = m.Name, strings.TrimPrefix(own.Type().String(), "func"),
				strings.TrimPrefix(m.Type.String(), "func")
		}
	}
	return name, has, wants
}

// asKind returns a plug-in, which may be nil, as one of the kind that its place requires, or refuses it.
func asKind[K Plugin](b *Builder, at strictyaml.Value, p Plugin, want string) (k K) {
	k, ok := p.(K)
	if p != nil && !ok {
		b.wrongKind(at, p, want)
	}
	return k
}

// wrongKind refuses a plug-in that is not of the kind that its place requires.
func (b *Builder) wrongKind(at strictyaml.Value, p Plugin, want string) {
	b.refuse(refAt(at), b.describe(p), article(want), b.belongs(p))
}

// ours reports whether a signature uses types of this package.
func ours(signature string) bool { return strings.Contains(signature, "picker.") }

func article(noun string) string {
	if strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// describe returns a plug-in's kinds, in words.
func (b *Builder) describe(p Plugin) string {
	var names []string
	places := map[string]bool{}
	for _, k := range b.kindsOf(p) {
		if !places[k.place] {
			names = append(names, article(k.name))
		}
		places[k.place] = true
	}
	return fmt.Sprintf("'%s' (type: %s) is %s", p.Name(), p.base().typ, strings.Join(names, " and "))
}

// belongs returns the places where the configuration may list a plug-in, in words.
func (b *Builder) belongs(p Plugin) string {
	var places []string
	for _, k := range b.kindsOf(p) {
		if !slices.Contains(places, k.place) {
			places = append(places, k.place)
		}
	}
	return "it belongs in " + strings.Join(places, ", or in ")
}

// checkPlace checks a plug-in's place in a profile. The real EPP silently accepts anything there, so that a plug-in
// without effect is only a warning.
func (b *Builder) checkPlace(p Plugin, ref config.ProfilePlugin) {
	_, filters := p.(Filter)
	_, scores := p.(Scorer)
	_, picks := p.(EndpointPicker)
	switch {
	case ref.Kind == "filter" && !filters, ref.Kind == "scorer" && !scores:
		b.wrongKind(ref.At, p, ref.Kind)
	case !filters && !scores && !picks:
		b.warn(refAt(ref.At), b.describe(p)+" and has no effect in a profile", "a filter, a scorer or a picker",
			b.belongs(p))
	case ref.Weight != nil && !scores && ref.Kind == "":
		b.warn(ref.At.Get("weight"), fmt.Sprintf("the weight of '%s' has no effect", p.Name()), "one on a scorer", "")
	}
}

// checkUse warns of plug-ins that act only where something refers to them, and to which nothing does: a scorer in no
// profile, a scraper in no dataLayer.
func (b *Builder) checkUse() {
	alone := func(k kind) bool { // without profiles, the default profile has them all
		return k.place == byItself || k.place == inProfiles && len(b.cfg.SchedulingProfiles) == 0
	}
	for _, spec := range b.cfg.Plugins {
		p := b.made[spec.Name]
		if p == nil || b.used[spec.Name] || slices.ContainsFunc(b.kindsOf(p), alone) {
			continue
		}
		if _, picks := p.(EndpointPicker); !picks { // a picker is the default of profiles without one
			b.warn(typeOf(spec.At), b.describe(p)+" and listed nowhere: it has no effect", "", b.belongs(p))
		}
	}
}
