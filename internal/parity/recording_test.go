package parity

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Line is one recorded run of the real picker.
type Line struct {
	ID, Topic, Config, Note string
	Flags                   []string
	Endpoints               []Endpoint
	Steps                   []Step
	InitialMetrics          map[string]Metrics `json:"initial_metrics"`
	StartErrors             []json.RawMessage  `json:"start_errors"`
	ExitCode                *int               `json:"exit_code"`
	Accepted                *bool
	EndpointsFile           *string `json:"endpoints_file"`

	Errors    []json.RawMessage // why the picker did not start
	Warnings  []json.RawMessage
	Effective string // the configuration with its defaults, as text

	unknown error // recorded fields that the player does not know

	// Of runs with a Kubernetes API server.
	Objects  json.RawMessage // "Kind/name": YAML, in the order of creation
	PoolName string          `json:"pool_name"`
}

// Endpoint is one fake model server.
type Endpoint struct {
	Name, Namespace, Address string
	Port                     any
	Labels                   map[string]string
	NotListening             bool `json:"not_listening"`
}

// Metrics are the families of a fake model server's page.
type Metrics struct {
	Waiting, Running, KV any
	LoRA                 *struct {
		Max              any
		Running, Waiting []string
		TS               any
	}
	Cache []int
}

// Step is one event of the run.
type Step struct {
	Metrics      map[string]Metrics
	MetricsRaw   map[string]string `json:"metrics_raw"`
	ScrapeFail   []string          `json:"scrape_fail"`
	ScrapeOK     []string          `json:"scrape_ok"`
	Request      *Request
	Hold         bool
	Observed     json.RawMessage
	Response     json.RawMessage
	ResponseSeen []Message       `json:"response_observed"`
	Blocked      json.RawMessage `json:"blocked_after_s"`

	Finish          string
	Usage           []int
	ResponseHeaders map[string]string `json:"response_headers"`
	ResponseChunks  []string          `json:"response_chunks"`

	HeadersSent    string `json:"response_headers_sent"`
	ContentType    string `json:"content_type"`
	ChunkSent      string `json:"response_chunk_sent"`
	Chunk          string
	EOS            bool
	EOSSent        string             `json:"response_eos_sent"`
	SleepS         float64            `json:"sleep_s"`
	Cancels        string             `json:"client_cancels"`
	Abort          bool               // the client left
	End            string             // how the stream then ended
	How, Note      string             // remarks
	EndpointsNow   []Endpoint         `json:"endpoints_file_now"`
	EndpointsRaw   *string            `json:"endpoints_file_raw"`
	BlockedThen    []string           `json:"blocked_before_release"`
	Order          []json.RawMessage  `json:"dispatch_order"`
	DispatchedThen []string           `json:"dispatched_before_release"`
	Answered       []string           `json:"answered_so_far"`
	Seconds        map[string]float64 `json:"seconds_until_answer"`
	Distribution   map[string]int
	Requests       int
	Template       json.RawMessage `json:"request_template"`
	Conversation   string
	Sent           [][2]json.RawMessage
	EPPMetrics     json.RawMessage `json:"epp_metrics"`

	KubeCreate string     `json:"kube_create"`
	KubePatch  *KubePatch `json:"kube_patch"`
	KubeDelete *KubePatch `json:"kube_delete"`
	Probes     string
	Runs       []struct {
		Answer string
		Seen   float64 `json:"first_seen_s"`
		Count  int
	}
	Burst      *Burst
	Counts     map[string]int
	Rejections map[string]Message
	BodyModels map[string]int `json:"body_models"`
	OnHeld     string         `json:"received_on_held"`
	Saturation *float64
	OrderMs    [][2]any `json:"order_ms"`
	Dispatched map[string]int
	AfterOne   string `json:"after_arrival"`
	Evicted    []struct {
		ID       string
		Observed Message
	}
	AfterBand  *int   `json:"after_priority"`
	Partial    string `json:"partial_response_sent"`
	HTTPGet    string `json:"http_get"`
	Body       json.RawMessage
	Status     json.RawMessage
	Refused    json.RawMessage // the API server's code and message
	Code       int             // its answer to a deletion
	Health     string
	AnsweredIt bool `json:"answered"`

	AnsweredBefore int `json:"answered_before"`
	DistinctSecond int `json:"distinct_creation_seconds"`
}

// KubePatch is a change of one object.
type KubePatch struct {
	Kind, Name, Subresource string
	Patch                   map[string]any `json:"merge_patch"`
}

// Burst is many equal requests.
type Burst struct {
	N           int
	Concurrency int
	Headers     map[string]string
	Body        string
}

// Request is one request as it was sent.
type Request struct {
	ID, Method, Path string
	Headers          map[string]string
	Body             *string
	Chunks           []int                     `json:"body_chunks"`
	Metadata         map[string]map[string]any `json:"metadata_context"`
	MetadataOn       string                    `json:"metadata_on_messages"`
}

// Message is one answer of the picker.
type Message struct {
	Type            string
	SetHeaders      [][2]string    `json:"set_headers"`
	RemoveHeaders   []string       `json:"remove_headers"`
	ClearRouteCache bool           `json:"clear_route_cache"`
	Metadata        map[string]any `json:"dynamic_metadata"`
	Status          int
	Body            *string
	Size            int
	EOS             bool
}

// Response is a model server's response.
type Response struct {
	Kind     string
	Usage    []int
	Headers  map[string]string
	Chunks   []string
	Trailers bool // trailers end the response, not the last chunk
}

// Observed is the picker's answer as the client received it.
type Observed struct {
	Messages []Message
	Ended    string
}

// Load reads all recordings of a topic.
func Load(fsys fs.FS, file string) ([]Line, error) {
	f, err := fsys.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []Line
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		l, err := readLine(sc.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, *l)
	}
	if len(out) == 0 && sc.Err() == nil {
		return nil, fmt.Errorf("%s: no recordings", file)
	}
	return out, sc.Err()
}

// readLine reads one run. Playing the run reports unknown fields.
func readLine(text []byte) (*Line, error) {
	l := &Line{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, err
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	l.unknown = strict.Decode(&Line{})
	return l, nil
}

// Page returns the text of a fake model server's metrics page.
func (m *Metrics) Page() string {
	var b strings.Builder
	gauge := func(name, labels string, v any) {
		fmt.Fprintf(&b, "# TYPE %s gauge\n%s{%s} %s\n", name, name, labels, number(v))
	}
	if m.Waiting != nil {
		gauge("vllm:num_requests_waiting", `model_name="m1"`, m.Waiting)
	}
	if m.Running != nil {
		gauge("vllm:num_requests_running", `model_name="m1"`, m.Running)
	}
	if m.KV != nil {
		gauge("vllm:kv_cache_usage_perc", `model_name="m1"`, m.KV)
	}
	if l := m.LoRA; l != nil {
		ts := l.TS
		if ts == nil {
			ts = 1.7e9
		}
		gauge("vllm:lora_requests_info", fmt.Sprintf("max_lora=%q,running_lora_adapters=%q,waiting_lora_adapters=%q",
			number(l.Max), strings.Join(l.Running, ","), strings.Join(l.Waiting, ",")), ts)
	}
	if len(m.Cache) == 2 {
		gauge("vllm:cache_config_info", fmt.Sprintf(`block_size="%d",num_gpu_blocks="%d"`, m.Cache[0], m.Cache[1]), 1.0)
	}
	return b.String()
}

func number(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}
