package latency

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/apiserver"
)

// Parameter is one number of a Calibration.
type Parameter uint8

// The parameters of a serving stack on GPUs. Parameters has their meanings.
const (
	Matrix16 Parameter = iota
	MatrixFP8
	MatrixFP8Blackwell
	MatrixFP4
	ExpertMatrix
	ExpertMatrixBlackwell
	ExpertMatrixWeightOnly
	ExpertTile
	ReadWeights
	ReadWeightsBlackwell
	ReadExperts
	ReadExpertsBlackwell
	Dequantize
	TouchExpert
	Imbalance
	Coincidence
	ReadKV
	Attention
	Pointwise
	Layer
	ExpertLayer
	PrefillLayer
	PrefillLayerOld
	AllReduce
	AllReduceRate
	Host
	HostSequence
	HostAsync
	APILatency
	APIRequest
	APIPromptToken
	APIOutputToken
	BenchRequest
	parameters
)

// ParameterInfo describes a parameter: its name in files, its unit, its bounds, a guess without
// measurements, and its meaning.
type ParameterInfo struct {
	Name, Unit string
	Low, High  float64
	Guess      float64
	Meaning    string
}

// Parameters describes all parameters, by number. A share is of the data sheet's peak. The upper bounds of shares keep
// every step slower than the hardware's floor.
var Parameters = [parameters]ParameterInfo{
	Matrix16: {"matrix16", "share", 0.1, 0.8, 0.65, "arithmetic rate of matrices in 16 bits"},
	MatrixFP8: {"matrixFP8", "share", 0.1, 0.8, 0.6,
		"arithmetic rate of FP8 and INT8 matrices before Blackwell"},
	MatrixFP8Blackwell: {"matrixFP8Blackwell", "share", 0.1, 0.8, 0.55,
		"arithmetic rate of FP8 matrices on Blackwell"},
	MatrixFP4: {"matrixFP4", "share", 0.1, 0.8, 0.5, "arithmetic rate of FP4 matrices"},
	ExpertMatrix: {"expertMatrix", "share", 0.02, 1, 0.3,
		"experts' grouped matrices before Blackwell, of the rate of others"},
	ExpertMatrixBlackwell: {"expertMatrixBlackwell", "share", 0.02, 1, 0.3,
		"experts' grouped matrices on Blackwell, of the rate of others"},
	ExpertMatrixWeightOnly: {"expertMatrixWeightOnly", "share", 0.02, 1, 0.4,
		"experts' matrices with 4-bit weights and 16-bit arithmetic, of the rate of others"},
	ExpertTile: {"expertTile", "tokens", 1, 128, 16,
		"tokens that the matrices of an expert compute in addition, because a tile is not full"},
	ReadWeights: {"readWeights", "share", 0.1, 0.95, 0.8,
		"bandwidth at which weights are read before Blackwell"},
	ReadWeightsBlackwell: {"readWeightsBlackwell", "share", 0.1, 0.95, 0.8,
		"bandwidth at which weights are read on Blackwell"},
	ReadExperts: {"readExperts", "share", 0.1, 0.95, 0.6,
		"bandwidth at which experts are read before Blackwell"},
	ReadExpertsBlackwell: {"readExpertsBlackwell", "share", 0.1, 0.95, 0.8,
		"bandwidth at which experts are read on Blackwell"},
	Dequantize: {"dequantize", "TB/s", 0.2, 20, 3,
		"rate at which 4-bit weights become 16-bit ones, without FP4 arithmetic"},
	TouchExpert: {"touchExpert", "us", 0.01, 5, 0.3,
		"kernels' time for each expert of a layer that a batch visits"},
	Imbalance: {"imbalance", "factor", 1, 2, 1.15,
		"the slowest rank's work with expert parallelism, of the mean"},
	Coincidence: {"coincidence", "share", 0.02, 1, 0.5,
		"prompts that other data-parallel ranks compute in the same step"},
	ReadKV:      {"readKV", "share", 0.1, 0.95, 0.7, "bandwidth at which decoding reads the KV cache"},
	Attention:   {"attention", "share", 0.05, 0.75, 0.5, "arithmetic rate of attention in 16 bits"},
	Pointwise:   {"pointwise", "passes", 0.5, 60, 12, "reads and writes of a hidden state in each layer"},
	Layer:       {"layer", "us", 1, 500, 40, "a layer's kernels beside their work"},
	ExpertLayer: {"expertLayer", "us", 1, 500, 20, "routing and permutation in a layer with experts"},
	PrefillLayer: {"prefillLayer", "us", 1, 2000, 150,
		"a layer's launches in a step with a prompt, which has no CUDA graph"},
	PrefillLayerOld: {"prefillLayerOld", "us", 1, 2000, 500, "the same in vLLM before 0.12"},
	AllReduce:       {"allReduce", "us", 1, 200, 8, "one all-reduce of few bytes"},
	AllReduceRate:   {"allReduceRate", "share", 0.05, 0.95, 0.6, "an all-reduce's part of the link's bandwidth"},
	Host: {"host", "us", 1, 20_000, 1000,
		"the engine process's work for a step without asynchronous scheduling"},
	HostSequence: {"hostSequence", "us", 0.01, 500, 8, "the same for each sequence that decodes"},
	HostAsync: {"hostAsync", "share", 0.01, 1, 0.3,
		"the part of both that asynchronous scheduling (0.14) does not hide"},
	APILatency: {"apiLatency", "ms", 0.01, 200, 4,
		"the API server's time for a request that delays no other request"},
	APIRequest: {"apiRequest", "ms", 0.01, 5, 4,
		"the API server's work for a request, one after the other"},
	APIPromptToken: {"apiPromptToken", "us", 0.01, 500, 6, "the same for each token of the prompt"},
	APIOutputToken: {"apiOutputToken", "us", 0.01, 500, 30, "the same for each token of the answer"},
	BenchRequest: {"benchRequest", "ms", 0.01, 50, 5,
		"the work of vllm bench serve for a request, one after the other"},
}

// units are the factors from a parameter's unit to seconds, or to bytes per second.
var units = map[string]float64{"us": 1e-6, "ms": 1e-3, "TB/s": 1e12}

// Calibration holds the parameters of a serving stack, in the units of Parameters. It is fitted to measured servers
// (windtunnel calibrate --results).
type Calibration [parameters]float64

// SI returns a parameter in seconds, in bytes per second, or without a unit. The conversion rounds the product, so that
// no processor fuses it with a sum in the caller.
func (c *Calibration) SI(p Parameter) float64 {
	if f, ok := units[Parameters[p].Unit]; ok {
		return float64(c[p] * f)
	}
	return c[p]
}

// Clamp moves every parameter into its bounds.
func (c *Calibration) Clamp() {
	for p := range c {
		c[p] = max(Parameters[p].Low, min(Parameters[p].High, c[p]))
	}
}

// MarshalJSON writes the parameters by name.
func (c Calibration) MarshalJSON() ([]byte, error) {
	named := map[string]float64{}
	for p, v := range c {
		named[Parameters[p].Name] = v
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads parameters by name. Those that are missing keep their value. An error names the parameter.
func (c *Calibration) UnmarshalJSON(text []byte) error {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(text, &named); err != nil {
		return fmt.Errorf("parameters: %w; expected a number for each name", err)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		p, ok := parameterNamed(name)
		if !ok {
			return fmt.Errorf("parameters: %.100q is unknown; expected one of %s", name, parameterNames())
		}
		var v float64
		if err, x := json.Unmarshal(named[name], &v), &Parameters[p]; err != nil || !(v >= x.Low && v <= x.High) {
			return fmt.Errorf("parameters.%s: found %.100s; expected %v to %v %s (%s)", name, named[name], x.Low,
				x.High, x.Unit, x.Meaning)
		}
		c[p] = v
	}
	return nil
}

func parameterNamed(name string) (Parameter, bool) {
	for p := range Parameters {
		if Parameters[p].Name == name {
			return Parameter(p), true
		}
	}
	return 0, false
}

func parameterNames() string {
	var all []string
	for p := range Parameters {
		all = append(all, Parameters[p].Name)
	}
	return strings.Join(all, ", ")
}

// CalibrationFile is a calibration with its origin, as windtunnel calibrate --results writes it.
type CalibrationFile struct {
	// Results is the number of results that the parameters are fitted to.
	Results int `json:"results"`
	// TPOT and TTFT are the median errors, as shares, at results that a fit to the others has not seen; 0 is unknown.
	TPOT float64 `json:"tpot,omitempty"`
	TTFT float64 `json:"ttft,omitempty"`
	// Spread is, of each parameter, the standard deviation of its logarithm that the results leave.
	Spread     map[string]float64 `json:"spread,omitempty"`
	Parameters Calibration        `json:"parameters"`
}

// String returns the origin of the parameters in words, for the source of step times.
func (c *CalibrationFile) String() string {
	text := fmt.Sprintf(", calibrated with %d results", c.Results)
	if c.TPOT > 0 {
		text += fmt.Sprintf(" (TPOT ±%.0f %%, TTFT ±%.0f %% on results left out)", max(1, 100*c.TPOT),
			max(1, 100*c.TTFT))
	}
	return text
}

// maxCalibrationBytes limits the size of a calibration file.
const maxCalibrationBytes = 1 << 16

// ParseCalibration reads a calibration file. Parameters that it does not have are those of windtunnel. Errors name the
// file and the parameter.
func ParseCalibration(file string, text []byte) (*CalibrationFile, error) {
	c := &CalibrationFile{Parameters: BuiltinCalibration()}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(c); {
	case len(text) > maxCalibrationBytes:
		return nil, fmt.Errorf("%s: found %d bytes; expected at most %d", file, len(text), maxCalibrationBytes)
	case err != nil:
		return nil, fmt.Errorf("%s: %w; expected a file that windtunnel calibrate --results has written", file, err)
	case d.More():
		return nil, fmt.Errorf("%s: found more after its end; expected one calibration", file)
	case c.Results < 0 || !(c.TPOT >= 0) || !(c.TTFT >= 0):
		return nil, fmt.Errorf("%s: results, tpot or ttft is below 0; expected a count and two errors as shares", file)
	}
	return c, nil
}

//go:embed data/calibration.json
var calibrationJSON []byte

// builtinCalibration is the calibration that comes with windtunnel: the fit to internal/silicon/data/silicon.csv that
// `make silicon` repeats.
var builtinCalibration = func() *CalibrationFile {
	var c CalibrationFile
	if err := json.Unmarshal(calibrationJSON, &c); err != nil {
		panic(err)
	}
	return &c
}()

// BuiltinCalibration returns the calibration that comes with windtunnel.
func BuiltinCalibration() Calibration { return builtinCalibration.Parameters }

// PriorCalibration returns the guesses of all parameters, from which the built-in calibration was fitted.
func PriorCalibration() (c Calibration) {
	for p := range c {
		c[p] = Parameters[p].Guess
	}
	return c
}

// APICosts returns the times of the API server.
func (c *Calibration) APICosts() apiserver.Costs {
	at := func(p Parameter) machine.Time { return machine.Time(float64(c.SI(p)*1e9) + 0.5) }
	return apiserver.Costs{Latency: at(APILatency), Request: at(APIRequest), PromptToken: at(APIPromptToken),
		OutputToken: at(APIOutputToken)}
}
