package tune

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// Knob is something that may vary: a field of the scenario, a plug-in's parameter, or the weight of a scorer.
type Knob struct {
	// Name is the path of the field, the plug-in with its parameter as NAME/PARAMETER, or the scorer as PROFILE/NAME,
	// after its pool if there are several.
	Name string `json:"name"`
	// Values are the choices. Without choices, the range is from Low to High, in steps of whole numbers if Whole, and
	// with equal shares for equal ratios if Log.
	Values []string `json:"values,omitempty"`
	Low    float64  `json:"low,omitempty"`
	High   float64  `json:"high,omitempty"`
	Log    bool     `json:"log,omitempty"`
	Whole  bool     `json:"whole,omitempty"`
	Zero   bool     `json:"zero,omitempty"`  // 0 is allowed, too
	Today  string   `json:"today,omitempty"` // the value as it is, where it is known

	fields   []string // paths; several take the parts of a value between colons
	plugin   string   // whose parameter it is, by name
	pool     int      // of a scorer
	scorer   string   // PROFILE/NAME
	variable string   // its name in conditions
}

// settings returns the fields with a value.
func (k *Knob) settings(value string) (out []scenario.Setting) {
	parts := []string{value}
	if len(k.fields) > 1 {
		parts = strings.Split(value, ":")
	}
	for i, path := range k.fields {
		out = append(out, scenario.Setting{Path: path, Value: parts[i]})
	}
	return out
}

// set gives the parameter of a plug-in a value in all pickers that have the plug-in.
func (k *Knob) set(s *scenario.Scenario, value string) error {
	found := false
	var names []string
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.EPP.Replicas == 0 {
			continue
		}
		text, err := whatif.Change(p.EPP.Config.File, string(p.EPP.Config.Text), nil, nil)
		if err != nil {
			return err
		}
		text, has, err := whatif.SetParameter(text, k.plugin, k.Name[len(k.plugin)+1:], value)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		if has {
			found = true
			p.EPP.Config = scenario.PickerConfig{File: "the tuned configuration", Text: []byte(text)}
		} else if cfg, err := config.Read("", []byte(text)); err == nil {
			for j := range cfg.Plugins {
				names = append(names, cfg.Plugins[j].Name)
			}
		}
	}
	if !found {
		return strictyaml.Problem{File: s.File, Found: "no picker has a plug-in " + k.plugin,
			Expected: "a parameter of one of " + strings.Join(names, ", "),
			Hint:     strictyaml.DidYouMean(k.plugin, names)}
	}
	return nil
}

// ChangesPicker reports whether a text of Options.Vary changes the configuration of a picker.
func ChangesPicker(vary string) bool {
	path, _, _ := strings.Cut(vary, "=")
	return vary == Weights || strings.Contains(path, "/") || strings.Contains(path, ".epp.config")
}

// least returns the lowest coordinate that check tries: a scorer may be the only one, which must not be left out.
func (k *Knob) least() float64 {
	if k.scorer != "" {
		return zeroShare
	}
	return 0
}

// mostKnobs bounds the knobs of a search, mostValues the splits of a pool's servers, and zeroShare is the share of
// coordinates that stand for 0.
const (
	mostKnobs  = 32
	mostValues = 1024
	zeroShare  = 0.15
)

// ParseKnob parses PATH=RANGE, or PLUGIN/PARAMETER=RANGE. A range is LOW..HIGH, whole numbers if both bounds are, or a
// list of values: A,B,C. A range that begins with 0 and a comma has 0, too; log: before it gives equal ratios equal
// shares.
func ParseKnob(text string) (Knob, error) {
	bad := func(what, expected string) error {
		return exit.Errorf(exit.Usage, "--vary %s: %s; expected %s", text, what, expected)
	}
	const form = "a field's path and its range, such as pools[0].replicas=2..8, " +
		"pools[0].modelServer.maxNumSeqs=64,128,256 or workload.rate=log:1..100, or a plug-in's parameter, such as " +
		"approx-prefix-cache-producer/blockSizeTokens=16,64"
	s, err := scenario.ParseSetting(text)
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), "; expected")
		return Knob{}, bad(what, form)
	}
	k := Knob{Name: s.Path}
	if plugin, parameter, is := strings.Cut(s.Path, "/"); is {
		if k.plugin = plugin; plugin == "" || parameter == "" {
			return k, bad("the plug-in or its parameter has no name", form)
		}
	} else {
		k.fields = []string{s.Path}
	}
	k.variable = s.Path[strings.LastIndexAny(s.Path, "./")+1:]
	value := strings.TrimSpace(s.Value)
	value, k.Log = strings.CutPrefix(value, "log:")
	rest, zero := strings.CutPrefix(value, "0,")
	from, to, ranged := strings.Cut(rest, "..")
	if !ranged {
		k.Values = search.SplitValues(s.Value)
		if k.Log || len(k.Values) < 2 || slices.Contains(k.Values, "") {
			return k, bad("there is one value, or an empty one", form)
		}
		return k, nil
	}
	k.Zero = zero
	var errs [2]error
	k.Low, errs[0] = strconv.ParseFloat(from, 64)
	k.High, errs[1] = strconv.ParseFloat(to, 64)
	switch {
	case errs[0] != nil || errs[1] != nil || math.IsInf(k.Low, 0) || math.IsInf(k.High, 0) || !(k.Low < k.High):
		return k, bad("the range is empty, or has no two numbers", "LOW..HIGH with LOW below HIGH")
	case k.Log && k.Low <= 0:
		return k, bad("log: of a range that reaches 0", "a LOW above 0; 0,LOW..HIGH has 0, too")
	}
	k.Whole = k.Low == math.Trunc(k.Low) && k.High == math.Trunc(k.High) && !strings.Contains(value, ".0")
	return k, nil
}

// text returns the value at a coordinate in [0, 1).
func (k *Knob) text(at float64) string {
	if len(k.Values) > 0 {
		return k.Values[int(at*float64(len(k.Values)))]
	}
	if k.Zero {
		if at < zeroShare {
			return "0"
		}
		at = (at - zeroShare) / (1 - zeroShare)
	}
	v := k.Low + at*(k.High-k.Low)
	switch {
	case k.Log:
		v = k.Low * math.Pow(k.High/k.Low, at)
	case k.Whole:
		v = k.Low + math.Floor(at*(k.High-k.Low+1))
	}
	if k.Whole {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return strconv.FormatFloat(search.Significant(v, 2), 'f', -1, 64)
}

// at returns the coordinate of a value, false if the value is outside the range.
func (k *Knob) at(text string) (float64, bool) {
	if i := slices.Index(k.Values, text); len(k.Values) > 0 {
		return (float64(i) + 0.5) / float64(len(k.Values)), i >= 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	if v == 0 && k.Zero {
		return zeroShare / 2, true
	}
	x := (v - k.Low) / (k.High - k.Low)
	switch {
	case k.Log:
		x = math.Log(v/k.Low) / math.Log(k.High/k.Low)
	case k.Whole:
		x = (v - k.Low + 0.5) / (k.High - k.Low + 1)
	}
	if k.Zero {
		x = zeroShare + x*(1-zeroShare)
	}
	return min(x, math.Nextafter(1, 0)), v >= k.Low && v <= k.High
}
