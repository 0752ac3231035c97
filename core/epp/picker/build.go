package picker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Types of plug-ins that the builder adds where the configuration names none.
const (
	typeSingleHandler  = "single-profile-handler"
	typeMaxScorePicker = "max-score-picker"
	typeDetector       = "utilization-detector"
	typeMetricsSource  = "metrics-data-source"
	typeExtractor      = "core-metrics-extractor"
	typeHealthSource   = "health-data-source"
)

// defaultPolicies are flow control's default policies.
var defaultPolicies = []string{"fcfs-ordering-policy", "global-strict-fairness-policy", "static-usage-limit-policy"}

// Builder makes the plug-ins of one configuration. Factories use it to find
// the plug-ins that they depend on.
type Builder struct {
	cfg      *config.Config
	reg      Registry
	opt      Options
	made     map[string]Plugin
	failed   map[string]bool // already reported
	used     map[string]bool // referenced by name
	order    []Plugin
	making   []string
	at       strictyaml.Value // the plug-in that is being made, or whose late function runs
	late     []func()
	problems strictyaml.Problems
	Warnings []string
}

// New builds a picker from a configuration. The error is a strictyaml.Problems with every mistake.
func New(cfg *config.Config, reg Registry, opt Options) (*Picker, error) {
	b := &Builder{cfg: cfg, reg: reg, opt: opt, made: map[string]Plugin{}, failed: map[string]bool{},
		used: map[string]bool{}, problems: slices.Clone(cfg.Problems)}
	for i := range cfg.Plugins {
		if spec := &cfg.Plugins[i]; spec.Name != "" { // a plug-in without a type has no name; that is already reported
			b.at = spec.At
			_, err := b.declared(spec.Name)
			b.note(spec.At, err)
		}
	}
	p := &Picker{opt: opt, cfg: cfg, pool: NewPool()}
	b.profiles(p)
	b.parsers(p)
	b.detector(p)
	b.dataLayer(p)
	b.readiness(p)
	for _, typ := range defaultPolicies {
		if _, known := reg[typ]; known { // flow control's defaults, whether it is on or not
			b.standard(typ, cfg.At)
		}
	}
	b.policies()
	// late functions may make producers, which have late functions of their own
	for len(b.late) > 0 && len(b.failed) == 0 {
		late := b.late
		b.late = nil
		for _, f := range late {
			f()
		}
	}
	if err := b.problems.Err(); err != nil {
		return nil, err
	}
	b.checkUse()
	p.wire(b.order)
	p.Warnings = append(append(p.Warnings, cfg.Warnings...), b.Warnings...)
	return p, nil
}

// refuse records a mistake in the configuration.
func (b *Builder) refuse(at strictyaml.Value, found, expected, hint string) {
	b.problems = append(b.problems, at.Problem(found, expected, hint))
}

// warn records a setting that has no effect.
func (b *Builder) warn(at strictyaml.Value, found, expected, hint string) {
	b.Warnings = append(b.Warnings, at.Problem(found, expected, hint).Error())
}

// errReported stands for a plug-in that could not be made, for a reason that is already reported.
var errReported = errors.New("the plug-in could not be made")

// note records an error about the value at a place.
func (b *Builder) note(at strictyaml.Value, err error) {
	if !errors.Is(err, errReported) {
		b.problems = append(b.problems, at.ProblemsOf(err)...)
	}
}

// Warn adds a line to the warnings that are logged at start-up.
func (b *Builder) Warn(format string, args ...any) {
	b.Warnings = append(b.Warnings, fmt.Sprintf(format, args...))
}

func (b *Builder) Options() *Options { return &b.opt }

// Plugin returns the declared plug-in with the given name. It makes the plug-in if necessary, so that factories may
// refer to each other in any order. Circular references are an error.
func (b *Builder) Plugin(name string) (Plugin, error) {
	b.used[name] = true
	return b.declared(name)
}

func (b *Builder) declared(name string) (Plugin, error) {
	if p := b.made[name]; p != nil {
		return p, nil
	}
	if b.failed[name] {
		return nil, errReported
	}
	spec := b.cfg.Plugin(name)
	if spec == nil {
		return nil, strictyaml.Problem{Found: fmt.Sprintf("references undefined plugin '%s'", name),
			Expected: "the name of a plug-in that is declared under plugins",
			Hint:     strictyaml.DidYouMean(name, b.names())}
	}
	if slices.Contains(b.making, name) {
		return nil, fmt.Errorf("plugins depend on each other in a circle: %v", append(b.making, name))
	}
	outer := b.at
	b.making, b.at = append(b.making, name), spec.At
	defer func() { b.making, b.at = b.making[:len(b.making)-1], outer }()
	parameters := spec.Parameters
	if !parameters.Given() {
		parameters = spec.At.Get("parameters")
	}
	p, err := b.make(spec.Type, name, spec.At, parameters)
	if err != nil {
		b.failed[name] = true
		b.note(spec.At, err)
		return nil, errReported
	}
	return p, nil
}

// names returns the names of all declared plug-ins.
func (b *Builder) names() []string {
	names := make([]string, len(b.cfg.Plugins))
	for i, p := range b.cfg.Plugins {
		names[i] = p.Name
	}
	return names
}

func (b *Builder) make(typ, name string, at, parameters strictyaml.Value) (Plugin, error) {
	r, ok := b.reg[typ]
	if !ok {
		if typ == "" {
			return nil, errReported
		}
		kind, alike := b.ofKind(typ)
		expected, hint := "a known type", cmp.Or(config.Today(typ), strictyaml.DidYouMean(typ, alike))
		if hint == "" {
			expected = kind + ", one of " + strings.Join(alike, ", ")
		}
		return nil, typeOf(at).Problem(fmt.Sprintf("plugin type '%s' not found in registry", typ), expected, hint)
	}
	switch {
	case r.Stability == Alpha && !b.opt.AllowExperimental:
		return nil, typeOf(at).Problem(
			fmt.Sprintf("plugin '%s' (type: '%s') has Alpha stability level, but command line flag "+
				"--allow-experimental-plugins is not set", name, typ), "", "")
	case r.Stability == Deprecated:
		b.Warn("plugin %s: type %s is deprecated", name, typ)
	}
	p, err := b.create(r.New, name, Params{parameters})
	if err != nil {
		var problems strictyaml.Problems
		if errors.As(err, &problems) {
			config.Modernize(problems)
		}
		if !errors.Is(err, errReported) && !errors.As(err, new(strictyaml.Problems)) &&
			!errors.As(err, new(strictyaml.Problem)) {
			err = fmt.Errorf("failed to create plugin '%s' (type: %s): %w", name, typ, err)
		}
		return nil, err
	}
	p.base().typ, p.base().name, p.base().index = typ, name, len(b.order)
	if err := b.checkShape(p, at); err != nil {
		return nil, err
	}
	b.order = append(b.order, p)
	b.made[name] = p
	return p, nil
}

// ofKind returns the known types whose names end in the same word, such as scorer, with that word and its article; all
// types where there is none.
func (b *Builder) ofKind(typ string) (kind string, types []string) {
	types = b.reg.Types()
	word := typ[strings.LastIndex(typ, "-")+1:]
	alike := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !strings.HasSuffix(t, "-"+word) })
	switch {
	case len(alike) < 2:
		return "a plug-in's type", types
	case strings.ContainsRune("aeiou", rune(word[0])):
		return "an " + word, alike
	}
	return "a " + word, alike
}

// typeOf returns the place of a declared plug-in's type. Document 003 has only a name.
func typeOf(at strictyaml.Value) strictyaml.Value {
	if t := at.Get("type"); t.Given() {
		return t
	}
	return at.Get("name")
}

// Late runs f when every declared plug-in exists. A factory uses it to find producers, which may be declared below it.
func (b *Builder) Late(f func() error) {
	at := b.at
	b.late = append(b.late, func() {
		b.at = at
		b.note(at, f())
	})
}

// Plugins returns the plug-ins made so far, in order.
func (b *Builder) Plugins() []Plugin { return b.order }

// Find returns an existing plug-in by name, nil if there is none.
func (b *Builder) Find(name string) Plugin {
	b.used[name] = true
	return b.made[name]
}

// Ensure returns the plug-in with the given name. If it is not declared and the name is defaultType's, Ensure makes one
// with default parameters. Without a defaultType it must be declared. dataKey and consumer are for the error.
func (b *Builder) Ensure(name, defaultType, dataKey, consumer string) (Plugin, error) {
	b.used[name] = true
	if p := b.made[name]; p != nil && (defaultType != "" || b.cfg.Plugin(name) != nil) {
		return p, nil
	}
	if name != defaultType {
		return nil, fmt.Errorf("failed to create missing data producers - no default producer found for missing data "+
			"key %s/%s, consumed by %s", dataKey, name, consumer)
	}
	return b.make(defaultType, name, strictyaml.Value{}, strictyaml.Value{})
}

// standard returns a plug-in that the configuration need not declare. It returns nil if the plug-in cannot be made, and
// reports that at the given place.
func (b *Builder) standard(typ string, at strictyaml.Value) Plugin {
	b.used[typ] = true
	if p := b.made[typ]; p != nil || b.failed[typ] {
		return p
	}
	p, err := b.make(typ, typ, strictyaml.Value{}, strictyaml.Value{})
	b.note(at, err)
	return p
}

// named returns the plug-in that a place of the configuration refers to. It returns nil if there is none, and reports
// that.
func (b *Builder) named(at strictyaml.Value, ref string) Plugin {
	b.used[ref] = true
	if pl := b.made[ref]; pl != nil || b.failed[ref] || ref == "" {
		return pl
	}
	b.refuse(refAt(at), fmt.Sprintf("references undefined plugin '%s'", ref),
		"the name of a plug-in that is declared under plugins", strictyaml.DidYouMean(ref, b.names()))
	return nil
}

// refAt returns the place of a reference's name.
func refAt(at strictyaml.Value) strictyaml.Value {
	for _, key := range []string{"pluginRef", "name"} {
		if v := at.Get(key); v.Given() {
			return v
		}
	}
	return at
}

// profiles builds the scheduling profiles and finds their handler.
func (b *Builder) profiles(p *Picker) {
	specs := b.cfg.SchedulingProfiles
	if len(specs) == 0 {
		def := config.Profile{Name: "default"}
		for _, pl := range b.order {
			switch pl.(type) {
			case Filter, Scorer, EndpointPicker:
				def.Plugins = append(def.Plugins, config.ProfilePlugin{PluginRef: pl.Name()})
			}
		}
		specs = []config.Profile{def}
	}
	for _, pl := range b.order {
		h, ok := pl.(ProfileHandler)
		if ok && p.handler != nil {
			b.refuse(b.declaredAt(h.Name()),
				fmt.Sprintf("multiple profile handlers found ('%s', '%s')", p.handler.Name(), h.Name()), "only one", "")
		}
		if ok && p.handler == nil {
			p.handler = h
		}
	}
	if p.handler == nil && len(b.failed) == 0 {
		if len(specs) > 1 {
			b.refuse(b.cfg.At.Get("plugins"), "no profile handler is declared",
				"one, such as disagg-profile-handler, where there are several scheduling profiles", "")
		} else {
			p.handler = instead[ProfileHandler](b, typeSingleHandler)
		}
	}
	var fallback EndpointPicker
	for _, pl := range b.order {
		if ep, ok := pl.(EndpointPicker); ok && fallback == nil {
			fallback = ep
		}
	}
	if fallback == nil && len(b.failed) == 0 {
		fallback = instead[EndpointPicker](b, typeMaxScorePicker)
	}
	for _, spec := range specs {
		pr := &profile{name: spec.Name}
		for _, ref := range spec.Plugins {
			pl := b.inProfile(ref)
			if pl == nil {
				continue
			}
			if f, ok := pl.(Filter); ok {
				pr.filters = append(pr.filters, f)
			}
			if s, ok := pl.(Scorer); ok {
				w := 1.0
				if ref.Weight != nil {
					w = *ref.Weight
				}
				pr.scorers = append(pr.scorers, WeightedScorer{s, w})
			}
			if ep, ok := pl.(EndpointPicker); ok {
				if pr.picker != nil {
					b.refuse(refAt(ref.At), fmt.Sprintf(
						"failed to add plugin '%s' to profile '%s': it already has the picker '%s'", ep.Name(),
						spec.Name, pr.picker.Name()), "one picker in each profile", "")
				}
				pr.picker = ep
			}
		}
		pr.picker = cmp.Or(pr.picker, fallback)
		if p.opt.Brief {
			pr.standing = newStanding(pr, p.pool)
			b, ok := pr.picker.(BlindPicker)
			pr.blind = ok && b.Blind() && len(pr.filters) == 0 && len(pr.scorers) == 0
		}
		p.profiles = append(p.profiles, pr)
		p.profileNames = append(p.profileNames, spec.Name)
	}
	if c, ok := p.handler.(ProfileChecker); ok {
		b.note(b.cfg.At.Get("schedulingProfiles"), c.CheckProfiles(p.profileNames))
	}
}

// declaredAt returns the place of a plug-in's declaration.
func (b *Builder) declaredAt(name string) strictyaml.Value {
	if spec := b.cfg.Plugin(name); spec != nil {
		return spec.At
	}
	return b.cfg.At
}

// instead returns the plug-in of a required kind, under its type's name. It replaces a declared plug-in of another kind
// with this name.
func instead[K Plugin](b *Builder, typ string) (out K) {
	if k, ok := b.made[typ].(K); ok {
		return k
	}
	delete(b.made, typ)
	pl := b.standard(typ, b.cfg.At)
	if k, ok := pl.(K); ok {
		return k
	} else if pl != nil {
		b.refuse(b.cfg.At, fmt.Sprintf("plugin type '%s' is registered with a factory that makes something else", typ),
			"", "")
	}
	return out
}

// inProfile returns a plug-in that a profile lists, whether declared or undeclared; nil if there is none.
func (b *Builder) inProfile(ref config.ProfilePlugin) Plugin {
	if b.made[ref.PluginRef] == nil && slices.Contains(b.undeclared(), ref.PluginRef) {
		return b.standard(ref.PluginRef, ref.At)
	}
	pl := b.named(ref.At, ref.PluginRef)
	if pl != nil {
		b.checkPlace(pl, ref)
	}
	return pl
}

// undeclared returns the names of the plug-ins, besides handler and picker, that exist without declaration.
func (b *Builder) undeclared() []string {
	out := append([]string{typeDetector}, defaultPolicies...)
	for _, ref := range b.parserRefs() {
		out = append(out, ref.PluginRef)
	}
	if b.injects() {
		out = append(out, typeMetricsSource, typeExtractor)
	}
	if ref := b.cfg.Detector().PluginRef; ref != "" && ref != typeDetector {
		out = out[1:]
	}
	return out
}

// injects reports whether the default metrics source is added to the configured ones.
func (b *Builder) injects() bool {
	dl := b.cfg.DataLayer
	if dl == nil {
		return true
	}
	if dl.InjectDefaults != nil && !*dl.InjectDefaults {
		return false
	}
	return !slices.ContainsFunc(dl.Sources, func(s config.Source) bool {
		pl := b.made[s.PluginRef]
		return pl != nil && pl.Type() == typeMetricsSource
	})
}

// Extracts reports whether a source of this type in dataLayer.sources lists the named plug-in as an extractor.
func (b *Builder) Extracts(sourceType, name string) bool {
	return b.cfg.DataLayer != nil && slices.ContainsFunc(b.cfg.DataLayer.Sources, func(s config.Source) bool {
		spec := b.cfg.Plugin(s.PluginRef)
		return spec != nil && spec.Type == sourceType &&
			slices.ContainsFunc(s.Extractors, func(e config.Ref) bool { return e.PluginRef == name })
	})
}

func (b *Builder) parserRefs() []config.Ref {
	switch c := b.cfg; {
	case c.RequestHandler != nil && len(c.RequestHandler.Parsers) > 0:
		return c.RequestHandler.Parsers
	case c.Parser != nil:
		return []config.Ref{*c.Parser}
	}
	return []config.Ref{{PluginRef: parse.TypeOpenAI}, {PluginRef: parse.TypeAnthropic},
		{PluginRef: parse.TypeVLLMHTTP}}
}

func (b *Builder) parsers(p *Picker) {
	for _, ref := range b.parserRefs() {
		pl := b.standard(ref.PluginRef, refAt(ref.At)) // a known type need not be declared
		if rp := asKind[RequestParser](b, ref.At, pl, "request parser"); rp != nil {
			p.parsers = append(p.parsers, rp.Parser())
		}
	}
}

func (b *Builder) detector(p *Picker) {
	ref := b.cfg.Detector()
	var pl Plugin
	if ref.PluginRef == "" || ref.PluginRef == typeDetector {
		pl = b.standard(typeDetector, b.cfg.At)
	} else {
		pl = b.named(ref.At, ref.PluginRef)
	}
	p.detector = asKind[SaturationDetector](b, ref.At, pl, "saturation detector")
}

// dataLayer finds discovery, sources and extractors.
func (b *Builder) dataLayer(p *Picker) {
	if ref := b.cfg.Discovery(); ref.PluginRef != "" {
		p.discovery = asKind[Discovery](b, ref.At, b.named(ref.At, ref.PluginRef), "discovery")
	}
	var sources []config.Source
	if dl := b.cfg.DataLayer; dl != nil {
		sources = dl.Sources
	}
	for _, s := range sources {
		pl := b.named(s.At, s.PluginRef)
		src, isSource := pl.(MetricsSource)
		if pl != nil && !isSource && !b.is(pl, KindSource) {
			b.wrongKind(s.At, pl, KindSource)
		}
		sc := Scrape{Source: src}
		for _, e := range s.Extractors {
			ex := b.named(e.At, e.PluginRef)
			if x, ok := ex.(MetricsExtractor); ok {
				sc.Extractors = append(sc.Extractors, x)
			} else if isSource && ex != nil && !b.is(ex, KindExtractor) {
				b.wrongKind(e.At, ex, KindExtractor)
			}
		}
		if isSource {
			p.scrapes = append(p.scrapes, sc)
		}
	}
	if !b.injects() {
		if len(p.scrapes) == 0 && len(sources) == 0 {
			b.refuse(b.cfg.At.At("dataLayer.injectDefaults"),
				"injectDefaults is false and there are no sources, so nothing would ever be scraped",
				"a source, or injectDefaults left out", "")
		}
		return
	}
	source, extractor := b.standard(typeMetricsSource, b.cfg.At), b.standard(typeExtractor, b.cfg.At)
	src := asKind[MetricsSource](b, b.declaredAt(typeMetricsSource), source, KindSource)
	ext := asKind[MetricsExtractor](b, b.declaredAt(typeExtractor), extractor, KindExtractor)
	p.scrapes = append(p.scrapes, Scrape{src, []MetricsExtractor{ext}})
}

// readinessProbe has the times of the readinessProbe in llm-d's guides. health-data-source's own failureThreshold is
// the guides'.
const readinessProbe = "{interval: 5s, timeout: 2s}"

// readiness adds a source that probes as a kubelet does: a pod that is not ready is no endpoint of an InferencePool,
// whatever its picker's configuration.
func (b *Builder) readiness(p *Picker) {
	probes := func(pl Plugin) bool { return pl.Type() == typeHealthSource }
	if !b.opt.Readiness || slices.ContainsFunc(b.order, probes) {
		return
	}
	doc, err := strictyaml.Parse([]byte(readinessProbe), strictyaml.Options{File: "readiness probe"})
	if err == nil {
		var pl Plugin
		pl, err = b.make(typeHealthSource, "readiness-probe", b.cfg.At, doc.Root())
		p.scrapes = append(p.scrapes, Scrape{Source: asKind[MetricsSource](b, b.cfg.At, pl, KindSource)})
	}
	b.note(b.cfg.At, err)
}

// policies checks the references to flow control's policies where flow control is on.
func (b *Builder) policies() {
	fc := b.cfg.FlowControl
	if fc == nil {
		return
	}
	check := func(at strictyaml.Value, field, ref, kind string) {
		b.used[ref] = true
		if at = at.Get(field); ref == "" || !b.cfg.FlowControlOn {
			return
		}
		if pl := b.named(at, ref); pl != nil && !b.is(pl, kind) {
			b.wrongKind(at, pl, kind)
		}
	}
	check(fc.At, "usageLimitPolicyPluginRef", fc.UsageLimitPolicyPluginRef, KindUsageLimit)
	bands := slices.Clone(fc.PriorityBands)
	for _, band := range []*config.Band{fc.DefaultPriorityBand, fc.DefaultNegativePriorityBand} {
		if band != nil {
			bands = append(bands, *band)
		}
	}
	for _, band := range bands {
		check(band.At, "fairnessPolicyRef", band.FairnessPolicyRef, KindFairness)
		check(band.At, "orderingPolicyRef", band.OrderingPolicyRef, KindOrdering)
	}
}
