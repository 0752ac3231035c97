package predictor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
)

// The API is that of llm-d-latency-predictor 0.9.0 (FastAPI), field by field.

const (
	maxBody   = 64 << 20
	modelType = "xgboost"
	// stamp is the format of a time in its JSON.
	stamp = "2006-01-02T15:04:05.000000"
)

// fault is an answer with an error status.
type fault struct {
	status int
	detail any
}

func (f *fault) Error() string { return fmt.Sprint(f.detail) }

// wrong is one entry of a 422's detail.
type wrong struct {
	Type  string `json:"type"`
	Loc   []any  `json:"loc"`
	Msg   string `json:"msg"`
	Input any    `json:"input"`
}

// notReady is the answer while there is no model; notFound is the answer for an unknown name.
func notReady() error { return &fault{http.StatusServiceUnavailable, "Models are not ready."} }

func notFound(format string, args ...any) error {
	return &fault{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

func invalid(kind, msg string, input any, loc ...any) error {
	return &fault{http.StatusUnprocessableEntity, []wrong{{kind, append([]any{"body"}, loc...), msg, input}}}
}

// page returns a handler that answers with f's result in JSON, or with f's error. A result of nil means that f has
// written the answer.
func page(status int, f func(w http.ResponseWriter, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(w, r)
		code := status
		if err != nil {
			code, v = http.StatusInternalServerError, map[string]any{"detail": err.Error()}
			if x := (*fault)(nil); errors.As(err, &x) {
				code, v = x.status, map[string]any{"detail": x.detail}
			}
		}
		if v == nil {
			return // f has written the answer
		}
		text, err := json.Marshal(v)
		if err != nil {
			code, text = http.StatusInternalServerError, []byte(`{"detail":"Internal Server Error"}`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(text) // an error means that the client has left
	}
}

func body(r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("a body of more than %d bytes", maxBody)}
	}
	return text, err
}

// object reads a JSON object.
func object(text []byte) (map[string]json.RawMessage, error) {
	var x map[string]json.RawMessage
	if err := json.Unmarshal(text, &x); err != nil || x == nil {
		return nil, invalid("json_invalid", "JSON decode error", map[string]any{}, 0)
	}
	return x, nil
}

// entry is a row to predict, or a training sample, in the request's form.
type entry struct {
	KV             *float64 `json:"kv_cache_percentage"`
	InputTokens    *float64 `json:"input_token_length"`
	Waiting        *float64 `json:"num_request_waiting"`
	Running        *float64 `json:"num_request_running"`
	Generated      *float64 `json:"num_tokens_generated"`
	Prefix         *float64 `json:"prefix_cache_score"`
	PodType        *string  `json:"pod_type"`
	PrefillTokens  float64  `json:"prefill_tokens_in_flight"`
	DecodeTokens   float64  `json:"decode_tokens_in_flight"`
	EncoderMatched float64  `json:"encoder_matched_size"`
	EncoderInput   float64  `json:"encoder_input_size"`
	TTFT           *float64 `json:"actual_ttft_ms"`
	TPOT           *float64 `json:"actual_tpot_ms"`
}

// sample checks an entry and converts it. With observed, both observed times are required.
func (e *entry) sample(observed bool, loc ...any) (core.Sample, error) {
	var s core.Sample
	at := func(name string) []any { return append(loc[:len(loc):len(loc)], name) }
	need := []struct {
		name string
		v    *float64
		to   *float64
		n    *int64
	}{{"kv_cache_percentage", e.KV, &s.KV, nil}, {"input_token_length", e.InputTokens, nil, &s.InputTokens},
		{"num_request_waiting", e.Waiting, nil, &s.Waiting},
		{"num_request_running", e.Running, nil, &s.Running}, {"num_tokens_generated", e.Generated, nil, &s.Generated},
		{"prefix_cache_score", e.Prefix, &s.Prefix, nil},
		{"prefill_tokens_in_flight", &e.PrefillTokens, nil, &s.PrefillTokens},
		{"decode_tokens_in_flight", &e.DecodeTokens, nil, &s.DecodeTokens},
		{"encoder_matched_size", &e.EncoderMatched, nil, &s.EncoderMatched},
		{"encoder_input_size", &e.EncoderInput, nil, &s.EncoderInput},
		{"actual_ttft_ms", e.TTFT, &s.TTFTMs, nil}, {"actual_tpot_ms", e.TPOT, &s.TPOTMs, nil}}
	if !observed {
		need = need[:len(need)-2]
	}
	for _, x := range need {
		switch {
		case x.v == nil:
			return s, invalid("missing", "Field required", nil, at(x.name)...)
		case x.to != nil:
			*x.to = *x.v
		case *x.v != math.Trunc(*x.v) || math.Abs(*x.v) > 1<<53:
			return s, invalid("int_from_float", "Input should be a valid integer, got a number with a fractional part",
				*x.v, at(x.name)...)
		default:
			*x.n = int64(*x.v)
		}
	}
	if e.PodType != nil {
		s.PodType = *e.PodType
	}
	if bad := s.Check(); bad != nil {
		return s, invalid("value_error", "Input should be "+bad.Expected, bad.Found, at(bad.Field)...)
	}
	return s, nil
}

func sound(list []core.Sample) bool {
	for i := range list {
		if list[i].Check() != nil {
			return false
		}
	}
	return true
}

// list reads a field that is a list of entries. Valid lists take a fast path. For all others, the slow path below
// finds the mistake and its place.
func list(r *http.Request, field string, least, most int, observed bool) ([]core.Sample, error) {
	all, err := body(r)
	if err != nil {
		return nil, err
	}
	if out, ok := core.ReadRows(all, field, observed); ok && len(out) >= least && len(out) <= most && sound(out) {
		return out, nil
	}
	x, err := object(all)
	if err != nil {
		return nil, err
	}
	text, ok := x[field]
	if !ok {
		return nil, invalid("missing", "Field required", nil, field)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, invalid("list_type", "Input should be a valid list", nil, field)
	}
	if len(raw) < least {
		return nil, invalid("too_short",
			fmt.Sprintf("List should have at least %d item after validation, not %d", least, len(raw)), nil, field)
	}
	if len(raw) > most {
		return nil, invalid("too_long",
			fmt.Sprintf("List should have at most %d items after validation, not %d", most, len(raw)), nil, field)
	}
	out := make([]core.Sample, len(raw))
	for i := range raw {
		if out[i], err = read(raw[i], observed, field, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func read(text []byte, observed bool, loc ...any) (core.Sample, error) {
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		at := loc
		if x := (*json.UnmarshalTypeError)(nil); errors.As(err, &x) && x.Field != "" {
			at = append(at[:len(at):len(at)], x.Field)
		}
		return core.Sample{}, invalid("type_error", "Input should be of another type: "+err.Error(), nil, at...)
	}
	return e.sample(observed, loc...)
}

func features(list []core.Sample) []core.Features {
	out := make([]core.Features, len(list))
	for i := range list {
		out[i] = list[i].Features
	}
	return out
}

// predictors is a pool of evaluators. Each evaluates models for one request at a time.
var predictors = sync.Pool{New: func() any { return new(core.Predictor) }}

// predicted is a PredictionResponse.
type predicted struct {
	TTFT      float64 `json:"ttft_ms"`
	TPOT      float64 `json:"tpot_ms"`
	At        string  `json:"predicted_at"`
	Model     string  `json:"model_type"`
	Objective string  `json:"objective_type"`
	Quantile  float64 `json:"quantile"`
	Loaded    *string `json:"last_model_load"`
}

// predict evaluates the models for each row. Times of day end in zone.
func (s *Server) predict(rows []core.Features, zone string) []predicted {
	m := s.models.Load()
	p := predictors.Get().(*core.Predictor)
	list := p.Predict(m.Models, rows, nil)
	predictors.Put(p)
	kind, alpha := s.objective()
	now := time.Now().UTC().Format(stamp) + zone
	out := make([]predicted, len(list))
	for i, x := range list {
		out[i] = predicted{x.TTFTMs, x.TPOTMs, now, modelType, kind, alpha, loaded(m, zone)}
	}
	return out
}

func loaded(m *models, zone string) *string {
	if m.loaded.IsZero() {
		return nil
	}
	text := m.loaded.UTC().Format(stamp) + zone
	return &text
}

// prediction returns the handler of the prediction server.
func (s *Server) prediction() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+core.PathPredict, page(200, s.strict))
	mux.HandleFunc("POST /predict/bulk", page(200, s.bulk))
	mux.HandleFunc("POST /predict", page(200, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		x, err := s.one(r)
		if err != nil {
			return nil, err
		}
		return s.predict([]core.Features{x}, "Z")[0], nil
	}))
	mux.HandleFunc("GET "+core.PathStatus, page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		m := s.models.Load()
		return s.about(map[string]any{"is_ready": true, "last_model_load": loaded(m, "+00:00"),
			"training_server_url": "http://" + s.TrainingAddress(), "ensemble_active": m.Gated(),
			"models_exist": map[string]bool{"ttft_model": true, "tpot_model": true, "ttft_gated": m.Gated(),
				"tpot_gated": m.Gated()}}), nil
	}))
	mux.HandleFunc("POST /reload", page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		return s.about(map[string]any{"synced": false, "loaded": true, "is_ready": true,
			"last_load_time": loaded(s.models.Load(), "+00:00")}), nil
	}))
	mux.HandleFunc("GET /healthz", constant(map[string]any{"status": "ok", "service": "http-based-latency-predictor"}))
	mux.HandleFunc("GET /readyz", page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		return s.about(map[string]any{"status": "ready"}), nil
	}))
	mux.HandleFunc("GET /{$}", page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		return s.about(map[string]any{"message": "HTTP-based latency predictor is running", "is_ready": true,
			"sync_interval": 0, "training_server": "http://" + s.TrainingAddress()}), nil
	}))
	mux.HandleFunc("/", nowhere)
	return mux
}

// about adds the models' type and objective to an answer.
func (s *Server) about(answer map[string]any) map[string]any {
	answer["model_type"] = modelType
	answer["objective_type"], answer["quantile"] = s.objective()
	return answer
}

func constant(v any) http.HandlerFunc {
	return page(200, func(http.ResponseWriter, *http.Request) (any, error) { return v, nil })
}

func nowhere(w http.ResponseWriter, r *http.Request) {
	page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		return nil, notFound("Not Found")
	})(w, r)
}

func (s *Server) one(r *http.Request) (core.Features, error) {
	text, err := body(r)
	if err == nil {
		_, err = object(text)
	}
	if err != nil {
		return core.Features{}, err
	}
	out, err := read(text, false)
	return out.Features, err
}

// strict is bulk for the path that the picker uses for each decision, with less work per row.
func (s *Server) strict(w http.ResponseWriter, r *http.Request) (any, error) {
	began := time.Now()
	rows, err := list(r, "requests", 1, core.MaxBulk, false)
	if err != nil {
		return nil, err
	}
	out := s.predict(features(rows), "+00:00")
	tail, err := json.Marshal(&out[0])
	if err != nil {
		return nil, err
	}
	_, tail, _ = bytes.Cut(tail, []byte(`,"predicted_at"`)) // the rest is the same for all rows
	b := append(make([]byte, 0, 64+len(out)*(64+len(tail))), `{"predictions":[`...)
	for i := range out {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(append(b, `{"ttft_ms":`...), out[i].TTFT, 'f', -1, 64)
		b = strconv.AppendFloat(append(b, `,"tpot_ms":`...), out[i].TPOT, 'f', -1, 64)
		b = append(append(b, `,"predicted_at"`...), tail...)
	}
	b = fmt.Appendf(b, `],"total_requests":%d,"successful_predictions":%d,"failed_predictions":0,`+
		`"processing_time_ms":%.3f}`, len(out), len(out), float64(time.Since(began))/float64(time.Millisecond))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // an error means that the client has left
	return nil, nil
}

func (s *Server) bulk(_ http.ResponseWriter, r *http.Request) (any, error) {
	began := time.Now()
	rows, err := list(r, "requests", 1, core.MaxBulk, false)
	if err != nil {
		return nil, err
	}
	out := s.predict(features(rows), "Z")
	return map[string]any{"predictions": out, "total_requests": len(out), "successful_predictions": len(out),
		"failed_predictions": 0, "errors": []any{},
		"processing_time_ms": float64(time.Since(began)) / float64(time.Millisecond)}, nil
}
