package flowcontrol_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// The recordings hold inputs and answers of the real picker (llm-d-router v0.10.0). Each line is one run.
type recording struct {
	ID        string
	Config    string
	Endpoints []struct{ Name, Address, Port string }
	Objects   map[string]string
	Steps     []map[string]json.RawMessage
	Errors    []struct{ Error string } `json:"start_errors"`
}

type recordedRequest struct {
	ID      string
	Headers map[string]string
	Body    *string
	Context map[string]map[string][]string `json:"metadata_context"`
}

func readRecordings(t *testing.T, name string) (lines []recording) {
	t.Helper()
	f, err := os.Open("testdata/recordings/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(z)
	s.Buffer(nil, 8<<20)
	for s.Scan() {
		var r recording
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	if s.Err() != nil || len(lines) == 0 {
		t.Fatal(name, s.Err(), len(lines))
	}
	return lines
}

// field decodes one key of a step; ok is false when it is absent.
func field[T any](step map[string]json.RawMessage, key string) (v T, ok bool) {
	raw, ok := step[key]
	if ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			return v, false
		}
	}
	return v, ok
}

// fileConfig is the part of EndpointPickerConfig that matters here.
type fileConfig struct {
	FeatureGates []string `yaml:"featureGates"`
	Plugins      []struct {
		Name, Type string
		Parameters yaml.Node
	}
	FlowControl struct {
		MaxBytes, MaxRequests       string
		DefaultRequestTTL           string     `yaml:"defaultRequestTTL"`
		DefaultPriorityBand         *fileBand  `yaml:"defaultPriorityBand"`
		DefaultNegativePriorityBand *fileBand  `yaml:"defaultNegativePriorityBand"`
		PriorityBands               []fileBand `yaml:"priorityBands"`
		UsageLimit                  string     `yaml:"usageLimitPolicyPluginRef"`
		MaxB                        string     `yaml:"maxBytes"`
		MaxR                        string     `yaml:"maxRequests"`
		EnableEviction              bool       `yaml:"enableEviction"`
		SaturationDetector          struct {
			PluginRef string `yaml:"pluginRef"`
		} `yaml:"saturationDetector"`
	} `yaml:"flowControl"`
}

type fileBand struct {
	Priority    int
	MaxBytes    string `yaml:"maxBytes"`
	MaxRequests string `yaml:"maxRequests"`
	Fairness    string `yaml:"fairnessPolicyRef"`
	Ordering    string `yaml:"orderingPolicyRef"`
}

// parameters of the plug-ins that matter here, all in one.
type fileParameters struct {
	QueueDepthThreshold  int      `yaml:"queueDepthThreshold"`
	KVCacheUtilThreshold float64  `yaml:"kvCacheUtilThreshold"`
	Headroom             float64  `yaml:"headroom"`
	ConcurrencyMode      string   `yaml:"concurrencyMode"`
	MaxConcurrency       int64    `yaml:"maxConcurrency"`
	MaxTokenConcurrency  int64    `yaml:"maxTokenConcurrency"`
	Threshold            *float64 `yaml:"threshold"`
	Shape, Domain        string
	MinCeiling           *float64 `yaml:"minCeiling"`
	MaxCeiling           *float64 `yaml:"maxCeiling"`
	Power, K             float64
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (r recording) config(t *testing.T) (Config, Probabilistic, bool) {
	t.Helper()
	var f fileConfig
	if err := yaml.Unmarshal([]byte(r.Config), &f); err != nil {
		t.Fatal(err)
	}
	c, p := DefaultConfig(), DefaultProbabilistic()
	quantity := func(text string) int64 {
		if text == "" {
			return 0
		}
		n, err := config.ParseQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	band := func(b fileBand) Band {
		return Band{
			Priority: b.Priority, MaxBytes: quantity(b.MaxBytes), MaxRequests: quantity(b.MaxRequests),
			Fairness: Fairness{Kind: b.Fairness}, Ordering: Ordering(b.Ordering),
		}
	}
	c.MaxBytes, c.MaxRequests = quantity(f.FlowControl.MaxB), quantity(f.FlowControl.MaxR)
	if text := f.FlowControl.DefaultRequestTTL; text != "" {
		c.RequestTTL = span(t, text)
	}
	for _, b := range f.FlowControl.PriorityBands {
		c.Bands = append(c.Bands, band(b))
	}
	if b := f.FlowControl.DefaultPriorityBand; b != nil {
		c.DefaultBand = band(*b)
	}
	if b := f.FlowControl.DefaultNegativePriorityBand; b != nil {
		n := band(*b)
		c.DefaultNegativeBand = &n
	}
	c.Eviction = f.FlowControl.EnableEviction
	if kind := f.FlowControl.SaturationDetector.PluginRef; kind != "" {
		c.Detector.Kind = kind
	}
	c.UsageLimit.Kind = or(f.FlowControl.UsageLimit, StaticUsageLimit)
	for _, plugin := range f.Plugins {
		var v fileParameters
		if !plugin.Parameters.IsZero() {
			if err := plugin.Parameters.Decode(&v); err != nil {
				t.Fatal(err)
			}
		}
		switch plugin.Type {
		case UtilizationDetectorType:
			u := &c.Detector.Utilization
			u.QueueDepthThreshold = or(v.QueueDepthThreshold, u.QueueDepthThreshold)
			u.KVCacheUtilThreshold, u.Headroom = or(v.KVCacheUtilThreshold, u.KVCacheUtilThreshold), v.Headroom
		case ConcurrencyDetectorType:
			d := &c.Detector.Concurrency
			d.Mode, d.Headroom = or(v.ConcurrencyMode, d.Mode), v.Headroom
			d.MaxConcurrency = or(v.MaxConcurrency, d.MaxConcurrency)
			d.MaxTokenConcurrency = or(v.MaxTokenConcurrency, d.MaxTokenConcurrency)
		case StaticUsageLimit:
			if v.Threshold != nil {
				c.UsageLimit.Threshold = *v.Threshold
			}
		case PriorityHoldback:
			c.UsageLimit.Holdback = Holdback{Shape: v.Shape, Domain: v.Domain, MinCeiling: v.MinCeiling,
				MaxCeiling: v.MaxCeiling}
		case "probabilistic-admitter":
			p.QueueDepthThreshold = or(v.QueueDepthThreshold, p.QueueDepthThreshold)
			p.KVCacheUtilThreshold = or(v.KVCacheUtilThreshold, p.KVCacheUtilThreshold)
			p.Power, p.K = or(v.Power, p.Power), or(v.K, p.K)
		}
	}
	return c, p, strings.Join(f.FeatureGates, " ") == "flowControl"
}

// objectives returns the priorities of the pool's objectives by name.
func (r recording) objectives() map[string]int {
	out := map[string]int{}
	for key, text := range r.Objects {
		if !strings.HasPrefix(key, "InferenceObjective/") {
			continue
		}
		var o struct {
			Metadata struct{ Name string }
			Spec     struct {
				Priority int
				PoolRef  struct{ Name string } `yaml:"poolRef"`
			}
		}
		if yaml.Unmarshal([]byte(text), &o) == nil && o.Spec.PoolRef.Name == "sim-pool" {
			out[o.Metadata.Name] = o.Spec.Priority
		}
	}
	return out
}

// answer is the client's answer: "" for none, "dispatched", or the refusal.
type answer struct{ text, endpoint string }

func refusalText(status int, body, reason string) string {
	return strconv.Itoa(status) + " " + body + " [" + reason + "]"
}

// recordedAnswer reads a step's observed messages.
func recordedAnswer(raw json.RawMessage) answer {
	type message struct {
		Type    string
		Status  json.RawMessage
		Body    string
		Headers [][2]string `json:"set_headers"`
	}
	var o struct{ Messages []message }
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		_ = json.Unmarshal(raw, &o.Messages)
	} else {
		_ = json.Unmarshal(raw, &o)
	}
	for _, m := range o.Messages {
		switch m.Type {
		case "immediate_response":
			reason := ""
			for _, h := range m.Headers {
				if h[0] == apierror.DroppedReasonHeader {
					reason = h[1]
				}
			}
			status, _ := strconv.Atoi(string(m.Status))
			return answer{text: refusalText(status, m.Body, reason)}
		case "request_headers":
			a := answer{text: "dispatched"}
			for _, h := range m.Headers {
				if h[0] == "x-gateway-destination-endpoint" {
					a.endpoint = h[1]
				}
			}
			return a
		}
	}
	return answer{}
}

func (r recordedRequest) arrival(id RequestID, objectives map[string]int) Arrive {
	a := Arrive{ID: id, FairnessID: or(r.Headers["x-llm-d-inference-fairness-id"], "default-flow")}
	name, given := r.Headers["x-llm-d-inference-objective"]
	if !given { // given but empty, it still hides the old name
		name = r.Headers["x-gateway-inference-objective"]
	}
	a.Priority = objectives[name]
	if r.Body != nil {
		a.Bytes = int64(len(*r.Body))
		var chat struct {
			Messages []struct{ Role, Content string }
		}
		_ = json.Unmarshal([]byte(*r.Body), &chat)
		for _, m := range chat.Messages {
			a.Tokens += int64(len(m.Role)+len(m.Content)+3) / 4
		}
	}
	if ms, err := strconv.Atoi(r.Headers["x-llm-d-slo-ttft-ms"]); err == nil {
		a.TTFT = machine.Time(ms) * machine.Millisecond
	}
	return a
}
