package latency

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// A calibration file that is written is read again, and parameters that a file does not have are the built-in ones.
func TestCalibrationFile(t *testing.T) {
	c := CalibrationFile{Results: 12, TPOT: 0.034, TTFT: 0.12, Spread: map[string]float64{"layer": 0.05},
		Parameters: PriorCalibration()}
	for p := range c.Parameters {
		c.Parameters[p] = (Parameters[p].Low + Parameters[p].High) / 3
	}
	c.Parameters.Clamp()
	text, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCalibration("mine.json", text)
	if err != nil || !reflect.DeepEqual(*again, c) {
		t.Errorf("written %+v\nread    %+v, %v", c, again, err)
	}
	const words = ", calibrated with 12 results (TPOT ±3 %, TTFT ±12 % on results left out)"
	if got := c.String(); got != words {
		t.Errorf("%q, want %q", got, words)
	}
	one, err := ParseCalibration("mine.json", []byte(`{"results": 1, "parameters": {"layer": 77}}`))
	want := BuiltinCalibration()
	want[Layer] = 77
	if err != nil || one.Parameters != want {
		t.Errorf("%+v, %v; want %+v", one, err, want)
	}
}

// A wrong file is refused with its name and the parameter's.
func TestWrongCalibrationFiles(t *testing.T) {
	whole, err := json.Marshal(CalibrationFile{Parameters: BuiltinCalibration()})
	if err != nil {
		t.Fatal(err)
	}
	parameters := func(text string) string { return `{"results": 1, "parameters": {` + text + `}}` }
	const layer = "parameters.layer: found "
	const bounds = "; expected 1 to 500 us (a layer's kernels beside their work)"
	for text, want := range map[string]string{
		"":                            "EOF; expected a file that windtunnel calibrate --results has written",
		"model,accelerator\n":         "invalid character 'm'",
		string(whole[:len(whole)/2]):  "unexpected EOF",
		string(whole) + string(whole): "found more after its end",
		`{"layers": 3}`:               `unknown field "layers"`,
		`{"results": -1}`:             "results, tpot or ttft is below 0",
		`{"tpot": -0.1}`:              "results, tpot or ttft is below 0",
		`{"tpot": 1e999}`:             "tpot",
		`{"parameters": [1, 2]}`:      "parameters: json: cannot unmarshal array",
		parameters(`"lair": 3`):       `parameters: "lair" is unknown; expected one of matrix16, `,
		parameters(`"layer": 0.5`):    layer + "0.5" + bounds,
		parameters(`"layer": 501`):    layer + "501" + bounds,
		parameters(`"layer": -1`):     layer + "-1" + bounds,
		parameters(`"layer": 1e999`):  layer + "1e999" + bounds,
		parameters(`"layer": "NaN"`):  layer + `"NaN"` + bounds,
		parameters(`"layer": null`):   layer + "null" + bounds,
		parameters(`"layer": NaN`):    "invalid character 'N'",
		parameters(`"layer": [` + strings.Repeat("1,", 200) + "1]"): layer + "[1,1,",
		strings.Repeat(" ", maxCalibrationBytes+1):                  "found 65537 bytes; expected at most 65536",
	} {
		_, err := ParseCalibration("mine.json", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "mine.json: ") || !strings.Contains(err.Error(), want) ||
			len(err.Error()) > 1000 {
			t.Errorf("%.60q: %v; want mine.json: … %s", text, err, want)
		}
	}
}
