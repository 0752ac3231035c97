package picker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/parse"
	"github.com/windtunnel/windtunnel/core/picker/strict"
)

// Type names that the builder itself puts where the configuration is silent.
const (
	typeSingleHandler  = "single-profile-handler"
	typeMaxScorePicker = "max-score-picker"
	typeDetector       = "utilization-detector"
	typeMetricsSource  = "metrics-data-source"
	typeExtractor      = "core-metrics-extractor"
)

// defaultPolicies are flow control's.
var defaultPolicies = []string{"fcfs-ordering-policy", "global-strict-fairness-policy", "static-usage-limit-policy"}

// Builder makes the plug-ins of one configuration. Factories use it to find
// the plug-ins that they depend on.
type Builder struct {
	cfg      *config.Config
	reg      Registry
	opt      Options
	made     map[string]Plugin
	order    []Plugin
	making   []string
	late     []func() error
	Warnings []string
}

// New builds a picker from a configuration. Errors name the plug-in and, when
// they are about a line of the file, the line.
func New(cfg *config.Config, reg Registry, opt Options) (*Picker, error) {
	b := &Builder{cfg: cfg, reg: reg, opt: opt, made: map[string]Plugin{}}
	for i := range cfg.Plugins {
		if _, err := b.Plugin(cfg.Plugins[i].Name); err != nil {
			return nil, err
		}
	}
	p := &Picker{opt: opt, cfg: cfg, pool: NewPool()}
	if err := b.profiles(p); err != nil {
		return nil, err
	}
	if err := b.parsers(p); err != nil {
		return nil, err
	}
	if err := b.detector(p); err != nil {
		return nil, err
	}
	if err := b.dataLayer(p); err != nil {
		return nil, err
	}
	for _, typ := range defaultPolicies {
		if _, known := reg[typ]; known { // flow control's defaults, whether it is on or not
			if _, err := b.standard(typ); err != nil {
				return nil, err
			}
		}
	}
	for len(b.late) > 0 { // late links may make producers, which have links of their own
		late := b.late
		b.late = nil
		for _, f := range late {
			if err := f(); err != nil {
				return nil, err
			}
		}
	}
	p.wire(b.order)
	p.Warnings = append(append(p.Warnings, cfg.Warnings...), b.Warnings...)
	return p, nil
}

// Warn adds a line to what is logged at start-up.
func (b *Builder) Warn(format string, args ...any) {
	b.Warnings = append(b.Warnings, fmt.Sprintf(format, args...))
}

// Options are the picker's options.
func (b *Builder) Options() *Options { return &b.opt }

// Plugin is the declared plug-in with the given name. It is made when it does
// not exist yet, so that factories may refer to each other in any order; a
// circle is an error.
func (b *Builder) Plugin(name string) (Plugin, error) {
	if p := b.made[name]; p != nil {
		return p, nil
	}
	spec := b.cfg.Plugin(name)
	if spec == nil {
		return nil, fmt.Errorf("a plugin has a dependency on the unregistered plugin %s", name)
	}
	if slices.Contains(b.making, name) {
		return nil, fmt.Errorf("plugins depend on each other in a circle: %v", append(b.making, name))
	}
	b.making = append(b.making, name)
	defer func() { b.making = b.making[:len(b.making)-1] }()
	field := spec.Field
	if field == "" {
		field = fmt.Sprintf("plugins[%d].parameters", slices.IndexFunc(b.cfg.Plugins, func(p config.Plugin) bool { return p.Name == name }))
	}
	return b.make(spec.Type, name, NewParams(spec.Parameters, field), spec.Line)
}

func (b *Builder) make(typ, name string, params Params, line int) (Plugin, error) {
	r, ok := b.reg[typ]
	if !ok {
		return nil, &strict.Error{Line: line, Msg: fmt.Sprintf("plugin '%s': plugin type '%s' not found in registry; known types are %v", name, typ, b.reg.Types())}
	}
	switch {
	case r.Stability == Alpha && !b.opt.AllowExperimental:
		return nil, &strict.Error{Line: line, Msg: fmt.Sprintf("plugin '%s' (type: '%s') has Alpha stability level, but command line flag --allow-experimental-plugins is not set", name, typ)}
	case r.Stability == Deprecated:
		b.Warn("plugin %s: type %s is deprecated", name, typ)
	}
	p, err := b.create(r.New, name, params)
	if err != nil {
		if e := (*strict.Error)(nil); errors.As(err, &e) && e.Line > 0 {
			return nil, fmt.Errorf("failed to create plugin '%s' (type: %s): %w", name, typ, err)
		}
		return nil, &strict.Error{Line: line, Msg: fmt.Sprintf("failed to create plugin '%s' (type: %s): %v", name, typ, err)}
	}
	p.base().typ, p.base().name, p.base().index = typ, name, len(b.order)
	b.order = append(b.order, p)
	b.made[name] = p
	return p, nil
}

// Late runs f when every declared plug-in exists: the place to look for
// producers, which may have been declared further down.
func (b *Builder) Late(f func() error) { b.late = append(b.late, f) }

// Plugins are those that were made so far, in their order.
func (b *Builder) Plugins() []Plugin { return b.order }

// Find is an existing plug-in by name, nil when there is none.
func (b *Builder) Find(name string) Plugin { return b.made[name] }

// Ensure is the plug-in with the given name; when none was declared and the
// name is a type's default name, one is made with default parameters. dataKey
// and consumer are for the error.
func (b *Builder) Ensure(name, defaultType, dataKey, consumer string) (Plugin, error) {
	if p := b.made[name]; p != nil {
		return p, nil
	}
	if name != defaultType {
		return nil, fmt.Errorf("failed to create missing data producers - no default producer found for missing data key %s/%s, consumed by %s", dataKey, name, consumer)
	}
	return b.make(defaultType, name, Params{}, 0)
}

// standard is a plug-in that the configuration need not declare.
func (b *Builder) standard(typ string) (Plugin, error) {
	if p := b.made[typ]; p != nil {
		return p, nil
	}
	if _, ok := b.reg[typ]; !ok {
		return nil, fmt.Errorf("plugin type '%s' not found in registry", typ)
	}
	return b.make(typ, typ, Params{}, 0)
}

// profiles builds the scheduling profiles and finds their handler.
func (b *Builder) profiles(p *Picker) error {
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
		if !ok {
			continue
		}
		if p.handler != nil {
			return fmt.Errorf("multiple profile handlers found ('%s', '%s'); only one is allowed", p.handler.Name(), h.Name())
		}
		p.handler = h
	}
	if p.handler == nil {
		if len(specs) > 1 {
			return errors.New("no profile handler is declared; several scheduling profiles need one, such as disagg-profile-handler")
		}
		h, err := instead[ProfileHandler](b, typeSingleHandler)
		if err != nil {
			return err
		}
		p.handler = h
	}
	var fallback EndpointPicker
	for _, pl := range b.order {
		if ep, ok := pl.(EndpointPicker); ok && fallback == nil {
			fallback = ep
		}
	}
	if fallback == nil {
		ep, err := instead[EndpointPicker](b, typeMaxScorePicker)
		if err != nil {
			return err
		}
		fallback = ep
	}
	for _, spec := range specs {
		pr := &profile{name: spec.Name}
		for j, ref := range spec.Plugins {
			pl, err := b.inProfile(spec.Name, j, ref.PluginRef)
			if err != nil {
				return err
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
					return fmt.Errorf("failed to add plugin '%s' to profile '%s': it already has the picker '%s'", ep.Name(), spec.Name, pr.picker.Name())
				}
				pr.picker = ep
			}
		}
		if pr.picker == nil {
			pr.picker = fallback
		}
		p.profiles = append(p.profiles, pr)
		p.profileNames = append(p.profileNames, spec.Name)
	}
	if c, ok := p.handler.(ProfileChecker); ok {
		return c.CheckProfiles(p.profileNames)
	}
	return nil
}

// instead is a plug-in of a kind that must be there, under its type's name. A
// declared one of another kind that has this name gives way to it.
func instead[K Plugin](b *Builder, typ string) (K, error) {
	if k, ok := b.made[typ].(K); ok {
		return k, nil
	}
	delete(b.made, typ)
	var none K
	pl, err := b.standard(typ)
	if err != nil {
		return none, err
	}
	k, ok := pl.(K)
	if !ok {
		return none, fmt.Errorf("plugin type '%s' is registered with a factory that makes something else", typ)
	}
	return k, nil
}

// inProfile is the plug-in that a profile lists: a declared one, or one of
// those that are there without declaration.
func (b *Builder) inProfile(profile string, place int, ref string) (Plugin, error) {
	if pl := b.made[ref]; pl != nil {
		return pl, nil
	}
	if slices.Contains(b.undeclared(), ref) {
		return b.standard(ref)
	}
	return nil, &strict.Error{Field: fmt.Sprintf("schedulingProfiles[%s].plugins[%d]", profile, place), Msg: fmt.Sprintf("references undefined plugin '%s'", ref)}
}

// undeclared are the plug-ins, besides handler and picker, that a
// configuration has without declaring them.
func (b *Builder) undeclared() []string {
	out := append([]string{typeDetector}, b.parserRefs()...)
	out = append(out, defaultPolicies...)
	if b.injects() {
		out = append(out, typeMetricsSource, typeExtractor)
	}
	if ref := b.cfg.DetectorRef(); ref != "" && ref != typeDetector {
		out = out[1:]
	}
	return out
}

// injects says whether the default source of metrics is added to those of the
// configuration.
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

func (b *Builder) parserRefs() []string {
	if refs := b.cfg.ParserRefs(); len(refs) > 0 {
		return refs
	}
	return []string{parse.TypeOpenAI, parse.TypeAnthropic, parse.TypeVLLMHTTP}
}

func (b *Builder) parsers(p *Picker) error {
	for _, ref := range b.parserRefs() {
		pl := b.made[ref]
		if pl == nil {
			var err error
			if pl, err = b.standard(ref); err != nil { // a known type need not be declared
				return fmt.Errorf("requestHandler.parsers: %w", err)
			}
		}
		rp, ok := pl.(RequestParser)
		if !ok {
			return fmt.Errorf("requestHandler.parsers: %w", TypeError(pl, "request parser"))
		}
		p.parsers = append(p.parsers, rp.Parser())
	}
	return nil
}

func (b *Builder) detector(p *Picker) error {
	ref := b.cfg.DetectorRef()
	if ref == "" {
		ref = typeDetector
	}
	pl := b.made[ref]
	if pl == nil {
		if ref != typeDetector {
			return fmt.Errorf("flowControl.saturationDetector: no plugin found with name %q", ref)
		}
		var err error
		if pl, err = b.standard(ref); err != nil {
			return err
		}
	}
	d, ok := pl.(SaturationDetector)
	if !ok {
		return fmt.Errorf("flowControl.saturationDetector: %w", TypeError(pl, "saturation detector"))
	}
	p.detector = d
	return nil
}

// dataLayer finds discovery, sources and extractors.
func (b *Builder) dataLayer(p *Picker) error {
	if ref := b.cfg.DiscoveryRef(); ref != "" {
		d, ok := b.made[ref].(Discovery)
		if !ok {
			return fmt.Errorf("dataLayer.discovery: no discovery plugin found with name %q", ref)
		}
		p.discovery = d
	}
	var sources []config.Source
	if dl := b.cfg.DataLayer; dl != nil {
		sources = dl.Sources
	}
	for i, s := range sources {
		field := fmt.Sprintf("dataLayer.sources[%d]", i)
		pl := b.made[s.PluginRef]
		if pl == nil {
			return fmt.Errorf("%s: no plugin found with name %q", field, s.PluginRef)
		}
		src, isSource := pl.(MetricsSource)
		if !isSource && !b.reg[pl.Type()].NoRole {
			return fmt.Errorf("%s: %w", field, TypeError(pl, "data source"))
		}
		sc := Scrape{Source: src}
		for j, e := range s.Extractors {
			ex := b.made[e.PluginRef]
			if ex == nil {
				return fmt.Errorf("%s.extractors[%d]: no plugin found with name %q", field, j, e.PluginRef)
			}
			if x, ok := ex.(MetricsExtractor); ok {
				sc.Extractors = append(sc.Extractors, x)
			}
		}
		if isSource {
			p.scrapes = append(p.scrapes, sc)
		}
	}
	if !b.injects() {
		if len(p.scrapes) == 0 && len(sources) == 0 {
			return errors.New("dataLayer: injectDefaults is false and there are no sources, so nothing would ever be scraped; add a source or leave injectDefaults out")
		}
		return nil
	}
	src, err := b.standard(typeMetricsSource)
	if err != nil {
		return err
	}
	ext, err := b.standard(typeExtractor)
	if err != nil {
		return err
	}
	source, isSource := src.(MetricsSource)
	if !isSource {
		return TypeError(src, "data source")
	}
	extractor, isExtractor := ext.(MetricsExtractor)
	if !isExtractor {
		return TypeError(ext, "metrics extractor")
	}
	p.scrapes = append(p.scrapes, Scrape{source, []MetricsExtractor{extractor}})
	return nil
}
