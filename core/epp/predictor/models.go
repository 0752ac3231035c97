package predictor

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/predictor/xgboost"
)

// ColdMs is every prediction of a predictor that was never trained.
const ColdMs = 10.0

// Name identifies a model: ttft or tpot, for all requests, for those that find an empty queue (noqueue), or for the
// others (queued).
type Name string

// The models: the first two always, the others once there are enough samples of each.
const (
	ModelTTFT        Name = "ttft"
	ModelTPOT        Name = "tpot"
	ModelTTFTNoqueue Name = "ttft_noqueue"
	ModelTTFTQueued  Name = "ttft_queued"
	ModelTPOTNoqueue Name = "tpot_noqueue"
	ModelTPOTQueued  Name = "tpot_queued"
)

var names = [...]Name{ModelTTFT, ModelTPOT, ModelTTFTNoqueue, ModelTTFTQueued, ModelTPOTNoqueue, ModelTPOTQueued}

// Target returns the quantity that the model predicts.
func (n Name) Target() Target {
	if strings.HasPrefix(string(n), "tpot") {
		return TPOT
	}
	return TTFT
}

func (n Name) unqueued() bool { return strings.HasSuffix(string(n), "_noqueue") }

func (n Name) gated() bool { return n != ModelTTFT && n != ModelTPOT }

// Models are trees that predict. They never change; several goroutines may use them.
type Models struct {
	o       Options
	types   []string // of pods, by their category
	library string   // that fitted them
	trees   [len(names)]*xgboost.Model
	text    [len(names)][]byte
	gated   bool
}

// Cold returns the models of a predictor that was never trained.
func Cold(o Options) *Models { return &Models{o: o, types: slices.Clone(podTypes)} }

// podTypes are the pod types that the real predictor knows.
var podTypes = []string{"", "prefill", "decode"}

// maxPodTypes bounds them; further ones are missing values to the trees.
const maxPodTypes = 32

// with returns models in which the given ones replace those of the same names.
func (m *Models) with(types []string, library string, fitted map[Name][]byte) (*Models, error) {
	out := &Models{o: m.o, types: types, library: library}
	if m.library != "" {
		out.trees[0], out.text[0], out.trees[1], out.text[1] = m.trees[0], m.text[0], m.trees[1], m.text[1]
	}
	gated := 0
	for name, text := range fitted {
		i := slices.Index(names[:], name)
		if i < 0 {
			return nil, fmt.Errorf("found a model %.40q; expected one of %v", name, names)
		}
		tree, err := xgboost.Read(text)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", name, err)
		}
		want := m.o.Columns(name.Target(), name.unqueued())
		if tree.Columns != len(want) {
			return nil, fmt.Errorf("model %s has %d columns; expected %d", name, tree.Columns, len(want))
		}
		for j, c := range want {
			if len(tree.Features) > 0 && tree.Features[j] != c.Name {
				return nil, fmt.Errorf("model %s: column %d is %.40q; expected %s", name, j, tree.Features[j], c.Name)
			}
		}
		out.trees[i], out.text[i] = tree, text
		if name.gated() {
			gated++
		}
	}
	out.gated = gated == len(names)-2
	return out, nil
}

// Ready reports whether a target has trained models.
func (m *Models) Ready(t Target) bool { return m.trees[t] != nil }

// Gated reports whether requests that need not wait have models of their own.
func (m *Models) Gated() bool { return m.gated }

// Library returns the library that fitted the models, such as "xgboost 3.2.0 on x86_64"; "" before the first.
func (m *Models) Library() string { return m.library }

// Text returns a model as the library wrote it, nil if there is none.
func (m *Models) Text(n Name) []byte {
	if i := slices.Index(names[:], n); i >= 0 {
		return m.text[i]
	}
	return nil
}

// Options returns the options that the models were fitted with.
func (m *Models) Options() Options { return m.o }

// Predictor evaluates models; it has the memory to do so for one caller.
type Predictor struct {
	rows [2][]float32 // of requests that need not wait, and of others
	out  []float32
	at   [2][]int
}

// Predict appends a prediction for each row.
func (p *Predictor) Predict(m *Models, rows []Features, out []Prediction) []Prediction {
	n := len(out)
	out = append(out, make([]Prediction, len(rows))...)
	for _, t := range []Target{TTFT, TPOT} {
		p.predict(m, t, rows, out[n:])
	}
	return out
}

func (p *Predictor) predict(m *Models, t Target, rows []Features, out []Prediction) {
	set := func(i int, v float64) {
		if t == TTFT {
			out[i].TTFTMs = v
		} else {
			out[i].TPOTMs = v
		}
	}
	if m.trees[t] == nil {
		for i := range rows {
			set(i, ColdMs)
		}
		return
	}
	for k := range p.rows {
		p.rows[k], p.at[k] = p.rows[k][:0], p.at[k][:0]
	}
	for i := range rows {
		f := rows[i]
		k := 1
		if m.gated && f.Waiting == 0 {
			k = 0
		}
		if t == TPOT && m.o.ZeroTokens && !m.gated {
			f.Generated = 0
		}
		p.rows[k] = m.o.row(p.rows[k], &f, t, k == 0, m.types)
		p.at[k] = append(p.at[k], i)
	}
	for k := range p.rows {
		tree := m.trees[t]
		if m.gated {
			tree = m.trees[2+2*int(t)+k]
		}
		if cap(p.out) < len(p.at[k]) {
			p.out = make([]float32, len(p.at[k]))
		}
		sums := p.out[:len(p.at[k])]
		tree.PredictAll(p.rows[k], sums)
		for j, i := range p.at[k] {
			v := float64(sums[j])
			if !(v > 0) || math.IsInf(v, 0) {
				v = 0
			}
			set(i, v)
		}
	}
}

// modelFormat names what Save writes.
const modelFormat = "windtunnel/latency-model/v1"

// MaxFileBytes bounds the file that Save writes.
const MaxFileBytes = 2 * xgboost.MaxBytes

type savedModels struct {
	Format  string                   `json:"format"`
	Options Options                  `json:"options"`
	Types   []string                 `json:"podTypes"`
	Library string                   `json:"library"`
	Models  map[Name]json.RawMessage `json:"models"`
}

// Save writes the models in one file of JSON, which Load reads.
func (m *Models) Save() ([]byte, error) {
	s := savedModels{Format: modelFormat, Options: m.o, Types: m.types, Library: m.library,
		Models: map[Name]json.RawMessage{}}
	for i, text := range m.text {
		if text != nil {
			s.Models[names[i]] = text
		}
	}
	return json.Marshal(&s)
}

// Load reads models that were trained before.
func Load(text []byte) (*Models, error) {
	var s savedModels
	if len(text) > MaxFileBytes {
		return nil, fmt.Errorf("a file of %d bytes; expected at most %d", len(text), MaxFileBytes)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%w; expected a file that windtunnel predictor or sim --save-model wrote", err)
	}
	switch {
	case s.Format != modelFormat:
		return nil, fmt.Errorf("format: found %.40q; expected %s", s.Format, modelFormat)
	case len(s.Types) > maxPodTypes || len(s.Types) < len(podTypes) || !slices.Equal(s.Types[:len(podTypes)], podTypes):
		return nil, fmt.Errorf("podTypes: expected %q first, and at most %d", podTypes, maxPodTypes)
	case s.Models[ModelTTFT] == nil || s.Models[ModelTPOT] == nil:
		return nil, fmt.Errorf("models: expected %s and %s", ModelTTFT, ModelTPOT)
	}
	if err := s.Options.Check(); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	fitted := map[Name][]byte{}
	for name, text := range s.Models {
		fitted[name] = text
	}
	return Cold(s.Options).with(s.Types, s.Library, fitted)
}
