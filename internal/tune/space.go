package tune

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// Weights stands for the weights of all scorers of the pickers.
const Weights = "weights"

// Split stands for the split of each pool's servers into prefill and decode servers.
const Split = "split"

// space is the set of all candidates: what varies, and the conditions that every candidate meets.
type space struct {
	variants  []search.Variant
	scenarios []*scenario.Scenario // of the variants, as they are
	base      *scenario.Scenario   // the first one
	knobs     []Knob
	where     []*vm.Program
}

// newSpace reads what varies and the conditions. It checks the fields and both ends of each range in all scenarios.
func newSpace(variants []search.Variant, vary, where []string, seed uint64) (*space, error) {
	x := &space{variants: variants}
	for i := range variants {
		s, err := variants[i].Scenario(0)
		if err != nil {
			return nil, err
		}
		if x.scenarios = append(x.scenarios, s); len(s.Pools) != len(x.scenarios[0].Pools) {
			return nil, exit.Errorf(exit.Usage, "%s has %d pools, and %s has %d; expected scenarios with the same "+
				"pools",
				variants[i].Name, len(s.Pools), variants[0].Name, len(x.scenarios[0].Pools))
		}
	}
	x.base = x.scenarios[0]
	if len(vary) == 0 {
		vary = []string{Weights}
	}
	for _, text := range vary {
		var err error
		switch text {
		case Weights:
			err = x.addScorers()
		case Split:
			err = x.addSplits()
		default:
			err = x.addField(text)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(x.knobs) == 0 || len(x.knobs) > mostKnobs {
		return nil, exit.Errorf(exit.Usage, "found %d fields and scorers to vary; expected 1 to %d: the picker's "+
			"scorers, or --vary PATH=RANGE", len(x.knobs), mostKnobs)
	}
	for i := range x.knobs {
		if err := x.check(&x.knobs[i]); err != nil {
			return nil, fmt.Errorf("--vary %s: %w", x.knobs[i].Name, err)
		}
	}
	return x, x.addConditions(where, seed)
}

// check plays no run: it returns an error if a listed value, or an end of a knob's range, is no scenario or no
// configuration of a picker, and for a parameter of a plug-in that ignores all parameters.
func (x *space) check(k *Knob) error {
	values := k.Values
	if len(values) == 0 || len(k.fields) > 1 {
		values = []string{k.text(k.least()), k.text(math.Nextafter(1, 0))}
	}
	for _, v := range values {
		if err := x.try(k, v); err != nil {
			return err
		}
	}
	const unknown = "noPluginHasThisParameter"
	wrong := Knob{Name: k.plugin + "/" + unknown, plugin: k.plugin}
	if k.plugin == "" {
		before, _, parameter := strings.Cut(k.Name, ".parameters.")
		if !parameter || !strings.Contains(before, ".epp.config.plugins[") {
			return nil
		}
		wrong = Knob{fields: []string{before + ".parameters." + unknown}}
	}
	if x.try(&wrong, "1") == nil {
		return exit.Errorf(exit.Input, "%s: the plug-in takes no parameters; expected a plug-in that has some",
			x.base.File)
	}
	return nil
}

// try returns an error if a value of a knob is no scenario, or no configuration of a picker. The error names the
// scenario's own files, not the changed text.
func (x *space) try(k *Knob, value string) error {
	alone := &space{variants: x.variants, knobs: []Knob{*k}}
	for i := range x.variants {
		s, err := alone.scenario(i, &job{values: []string{value}})
		if err != nil {
			return err
		}
		for p := range s.Pools {
			if s.Pools[p].EPP.Replicas == 0 || len(k.fields) > 0 {
				continue
			}
			if _, _, err := pickerOf(&s.Pools[p].EPP.Config); err != nil {
				return exit.With(exit.Input, placed(err, x.scenarios[i], p))
			}
		}
	}
	return nil
}

// placed gives the mistakes in the changed configuration of a pool's picker the file and the path of the given one.
func placed(err error, s *scenario.Scenario, pool int) error {
	var list strictyaml.Problems
	if !errors.As(err, &list) {
		return err
	}
	file, path := s.Pools[pool].EPP.Config.File, ""
	if file == "" || file == s.File {
		file, path = s.File, fmt.Sprintf("pools[%d].epp.config.", pool)
	}
	for i := range list {
		list[i].File, list[i].Line, list[i].Path = file, 0, path+list[i].Path
	}
	return list
}

// addSplits adds the split into prefill and decode servers of each pool that has both.
func (x *space) addSplits() error {
	for i := range x.base.Pools {
		p := &x.base.Pools[i]
		prefill, total := p.Disaggregation.PrefillReplicas, p.Servers()
		if prefill == 0 {
			continue
		}
		if total > mostValues || len(p.Groups) > 0 || x.variants[0].Overrides.Replicas != nil {
			return exit.Errorf(exit.Usage, "--vary split: found pool %s with %d servers; expected at most %d, in no "+
				"groups, and no --replicas", p.Name, total, mostValues)
		}
		k := Knob{Name: fmt.Sprintf("pools[%d].split", i), Today: fmt.Sprintf("%d:%d", prefill, total-prefill)}
		k.fields = []string{fmt.Sprintf("pools[%d].disaggregation.prefillReplicas", i),
			fmt.Sprintf("pools[%d].replicas", i)}
		for n := 1; n < total; n++ {
			k.Values = append(k.Values, fmt.Sprintf("%d:%d", n, total-n))
		}
		x.knobs = append(x.knobs, k)
	}
	if len(x.knobs) == 0 {
		return exit.Errorf(exit.Usage, "--vary split: no pool has prefill servers; expected "+
			"disaggregation.prefillReplicas above 0")
	}
	return nil
}

// addField adds a field of the scenario, or a parameter of a plug-in.
func (x *space) addField(text string) error {
	if !strings.Contains(text, "=") && strings.ContainsAny(text, "./") { // the path of a field or a parameter
		values, err := x.limits(text)
		if err != nil {
			return err
		}
		text += "=" + values
	}
	k, err := ParseKnob(text)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(x.knobs, func(other Knob) bool { return other.Name == k.Name }) {
		return exit.Errorf(exit.Usage, "--vary: %s is given twice", k.Name)
	}
	x.knobs = append(x.knobs, k)
	return nil
}

// The powers of two that limits tries.
const leastPower, mostPower = -10, 20

// limits returns the range of a field or a parameter that the scenario's and the plug-in's own checks accept: the
// powers of two from the smallest to the greatest, all numbers from 0 or the smallest where 1 is the greatest, or true
// and false. Its error is the one of the checks.
func (x *space) limits(name string) (string, error) {
	k, err := ParseKnob(name + "=1,1")
	if err != nil {
		return "", err
	}
	valid := func(value string) bool { return x.try(&k, value) == nil }
	var found []string
	for i := leastPower; i <= mostPower; i++ {
		if text := strconv.FormatFloat(math.Ldexp(1, i), 'f', -1, 64); valid(text) {
			found = append(found, text)
		}
	}
	switch n := len(found); {
	case n > 1 && found[n-1] == "1":
		if valid("0") {
			found[0] = "0"
		}
		return found[0] + "..1", nil
	case n > 1:
		return "log:" + found[0] + ".." + found[n-1], nil
	case valid("true") && valid("false"):
		return "true,false", nil
	}
	if err := x.try(&k, "1"); err != nil {
		return "", err
	}
	return "", exit.Errorf(exit.Usage, "--vary %s: no range of numbers is valid; expected %[1]s=RANGE", name)
}

// addScorers adds the weight of each scorer: 0, or 0.1 to 10.
func (x *space) addScorers() error {
	for i := range x.base.Pools {
		p := &x.base.Pools[i]
		if p.EPP.Replicas == 0 {
			continue
		}
		cfg, k, err := pickerOf(&p.EPP.Config)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		scores := map[string]bool{}
		for _, pl := range k.Plugins() {
			_, scores[pl.Name()] = pl.(picker.Scorer)
		}
		for _, profile := range cfg.SchedulingProfiles {
			for _, ref := range profile.Plugins {
				if scores[ref.PluginRef] {
					x.addScorer(i, profile.Name, ref.PluginRef, ref.Weight)
				}
			}
		}
	}
	return nil
}

// pickerOf returns the picker of a configuration.
func pickerOf(c *scenario.PickerConfig) (*config.Config, *picker.Picker, error) {
	cfg, err := c.Read()
	if err != nil {
		return nil, nil, err
	}
	k, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	return cfg, k, err
}

// addScorer adds a scorer's weight. nil is a weight of 1.
func (x *space) addScorer(pool int, profile, name string, weight *float64) {
	k := Knob{Low: 0.1, High: 10, Log: true, Zero: true, pool: pool, scorer: profile + "/" + name,
		variable: strings.ReplaceAll(name, "-", "_")}
	k.Name = k.scorer
	if len(x.base.Pools) > 1 {
		k.Name = x.base.Pools[pool].Name + " " + k.scorer
	}
	k.Today = "1"
	if weight != nil {
		k.Today = strconv.FormatFloat(*weight, 'f', -1, 64)
	}
	x.knobs = append(x.knobs, k)
}

// addConditions compiles the conditions, and checks that some candidate meets them. A name that two knobs have is no
// variable.
func (x *space) addConditions(where []string, seed uint64) error {
	env := map[string]any{}
	named := map[string]int{}
	for i := range x.knobs {
		k := &x.knobs[i]
		named[k.variable]++
		env[k.variable] = typed(k.text(0))
	}
	for i := range x.knobs {
		if k := &x.knobs[i]; named[k.variable] > 1 {
			delete(env, k.variable)
			k.variable = ""
		}
	}
	for _, text := range where {
		program, err := expr.Compile(text, expr.Env(env), expr.AsBool())
		if err != nil {
			return exit.Errorf(exit.Usage, "--where: %w; expected a condition over %s", err,
				strings.Join(slices.Sorted(maps.Keys(env)), ", "))
		}
		x.where = append(x.where, program)
	}
	if len(where) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	at := make([]float64, len(x.knobs))
	for range 10_000 {
		for i := range at {
			at[i] = rng.Float64()
		}
		if _, ok := x.decode(at); ok {
			return nil
		}
	}
	return exit.Errorf(exit.Usage, "--where: none of 10,000 random candidates meets %s; expected conditions that some "+
		"candidates meet", strings.Join(where, " and "))
}

// typed returns a number where the text is one.
func typed(text string) any {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v
	}
	return text
}

// decode returns the values at a point, false where they miss a condition or leave a profile without a scorer.
func (x *space) decode(at []float64) ([]string, bool) {
	values, env := make([]string, len(at)), map[string]any{}
	scored := map[string]bool{}
	for i := range at {
		k := &x.knobs[i]
		values[i] = k.text(at[i])
		if k.variable != "" {
			env[k.variable] = typed(values[i])
		}
		if k.scorer != "" {
			profile := fmt.Sprint(k.pool, k.scorer[:strings.IndexByte(k.scorer, '/')])
			scored[profile] = scored[profile] || values[i] != "0"
		}
	}
	for _, any := range scored {
		if !any {
			return nil, false
		}
	}
	for _, program := range x.where {
		if ok, err := expr.Run(program, env); err != nil || ok != true {
			return nil, false
		}
	}
	return values, true
}

// today returns today's configuration as a candidate, nil where a value of it is unknown or outside its range.
func (x *space) today() *candidate {
	c := &candidate{}
	for i := range x.knobs {
		k := &x.knobs[i]
		at, ok := k.at(k.Today)
		if !ok {
			return nil
		}
		c.at, c.values = append(c.at, at), append(c.values, k.Today)
	}
	return c
}

// scenario returns one of the scenarios with the values of a job, nil for today's configuration.
func (x *space) scenario(which int, j *job) (*scenario.Scenario, error) {
	var settings []scenario.Setting
	weights, off := map[int]map[string]float64{}, map[int][]string{}
	changed := map[int]bool{}
	for i, v := range j.values {
		k := &x.knobs[i]
		switch {
		case len(k.fields) > 0:
			settings = append(settings, k.settings(v)...)
			continue
		case k.plugin != "":
			continue
		case v == "0":
			off[k.pool] = append(off[k.pool], k.scorer)
		default:
			w, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return nil, err
			}
			if weights[k.pool] == nil {
				weights[k.pool] = map[string]float64{}
			}
			weights[k.pool][k.scorer] = w
		}
		changed[k.pool] = true
	}
	if j.factor > 0 {
		settings = append(settings, scenario.Setting{Path: "pools[*].modelServer.jitter.factor",
			Value: strconv.FormatFloat(j.factor, 'f', -1, 64)})
	}
	v := x.variants[which].With(settings...)
	s, err := v.Scenario(0)
	if err != nil {
		return nil, err
	}
	for pool := range changed {
		c := &s.Pools[pool].EPP.Config
		text, err := whatif.Change(c.File, string(c.Text), weights[pool], off[pool])
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		*c = scenario.PickerConfig{File: "the tuned configuration", Text: []byte(text)}
	}
	for i, v := range j.values {
		if k := &x.knobs[i]; k.plugin != "" {
			if err := k.set(s, v); err != nil {
				return nil, exit.With(exit.Usage, err)
			}
		}
	}
	return s, nil
}

// named returns a candidate's values by knob.
func (x *space) named(c *candidate) map[string]string {
	out := map[string]string{}
	for i, v := range c.values {
		out[x.knobs[i].Name] = v
	}
	return out
}
