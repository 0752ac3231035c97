package predictor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/epp/predictor/xgboost"
)

// training returns the handler of the training server.
func (s *Server) training() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+core.PathSamples, page(202, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		samples, err := list(r, "entries", 0, core.MaxEntries, true)
		if err != nil {
			return nil, err
		}
		s.driver.Input(core.Samples{List: samples})
		return map[string]any{"message": fmt.Sprintf("Accepted %d training samples.", len(samples))}, nil
	}))
	mux.HandleFunc("POST /predict", page(200, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		x, err := s.one(r)
		if err != nil {
			return nil, err
		}
		p := s.predict([]core.Features{x}, "Z")[0]
		unsure := func(v float64) (float64, [2]float64) { return .1 * v, [2]float64{math.Max(0, v-.2*v), v + .2*v} }
		ttft, ttftBounds := unsure(p.TTFT)
		tpot, tpotBounds := unsure(p.TPOT)
		return map[string]any{"ttft_ms": p.TTFT, "tpot_ms": p.TPOT, "predicted_at": p.At, "model_type": p.Model,
			"objective_type": p.Objective, "quantile": p.Quantile,
			"ttft_uncertainty": ttft, "tpot_uncertainty": tpot, "ttft_prediction_bounds": ttftBounds,
			"tpot_prediction_bounds": tpotBounds}, nil
	}))
	mux.HandleFunc("GET /healthz", constant(map[string]any{"status": "ok"}))
	mux.HandleFunc("GET /readyz", constant(map[string]any{"status": "ready"}))
	mux.HandleFunc("GET /{$}", page(200, func(http.ResponseWriter, *http.Request) (any, error) {
		return s.about(map[string]any{"message": "Latency Predictor is running.",
			"description": "trees that the XGBoost library fits"}), nil
	}))
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("POST /flush", page(200, s.flush))
	mux.HandleFunc("GET /data/status", page(200, s.dataStatus))
	mux.HandleFunc("GET "+core.PathInfo, page(200, s.info))
	mux.HandleFunc("GET /models/list", page(200, s.list))
	mux.HandleFunc("GET /model/export", page(200, s.export))
	mux.HandleFunc("GET /model/export/json", page(200, func(w http.ResponseWriter, _ *http.Request) (any, error) {
		m := s.models.Load()
		if !m.Ready(core.TTFT) || !m.Ready(core.TPOT) {
			return nil, notReady()
		}
		text, err := m.Save()
		if err == nil {
			err = file(w, "latency-model.json", "application/json", text)
		}
		return nil, err
	}))
	for _, t := range []core.Target{core.TTFT, core.TPOT} {
		mux.HandleFunc("GET "+core.PathTrees(t),
			page(200, func(w http.ResponseWriter, _ *http.Request) (any, error) { return s.dump(w, t) }))
		for _, kind := range []string{"txt", "importances"} {
			mux.HandleFunc("GET /model/"+t.String()+"/lgb/"+kind,
				page(200, func(http.ResponseWriter, *http.Request) (any, error) {
					return nil, notFound("Model type is xgboost, not lightgbm")
				}))
		}
	}
	mux.HandleFunc("GET /model/{name}/info", page(200, s.modelInfo))
	mux.HandleFunc("GET /model/{name}/download", page(200, s.download))
	mux.HandleFunc("GET /debug/prefix_distribution", page(200, s.prefixes))
	mux.HandleFunc("/", nowhere)
	return mux
}

func file(w http.ResponseWriter, name, kind string, text []byte) error {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(text)))
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, err := w.Write(text)
	return err
}

func (s *Server) flush(_ http.ResponseWriter, r *http.Request) (any, error) {
	ask := struct {
		Train  bool    `json:"flush_training_data"`
		Test   bool    `json:"flush_test_data"`
		Scores bool    `json:"flush_metrics"`
		Reason *string `json:"reason"`
	}{true, true, true, nil}
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err == nil && len(bytes.TrimSpace(text)) > 0 {
		err = json.Unmarshal(text, &ask)
	}
	if err != nil {
		return nil, invalid("json_invalid", "JSON decode error", nil)
	}
	was := s.Status()
	s.driver.Input(core.Flush{Train: ask.Train, Test: ask.Test, Scores: ask.Scores})
	if !ask.Train {
		was.Train = [2]int{}
	}
	if !ask.Test {
		was.Test = [2]int{}
	}
	return map[string]any{"success": true, "flushed_at": time.Now().UTC().Format(stamp) + "Z", "reason": ask.Reason,
		"ttft_training_samples_flushed": was.Train[0],
		"tpot_training_samples_flushed": was.Train[1], "ttft_test_samples_flushed": was.Test[0],
		"tpot_test_samples_flushed": was.Test[1],
		"metrics_cleared":           ask.Scores,
		"message": fmt.Sprintf("Flushed %d training and %d test samples.", was.Train[0]+was.Train[1],
			was.Test[0]+was.Test[1])}, nil
}

func (s *Server) dataStatus(http.ResponseWriter, *http.Request) (any, error) {
	st := s.Status()
	o := st.Models.Options()
	counts := func(n [2]int) map[string]int {
		return map[string]int{"ttft_samples": n[0], "tpot_samples": n[1], "total_samples": n[0] + n[1]}
	}
	buckets := map[string]int{}
	for _, b := range st.Buckets {
		buckets[fmt.Sprintf("queue_%d_cache_%d_prefix_%d", b.Queue, b.Cache, b.Prefix)] = b.TTFT + b.TPOT
	}
	var last any
	if st.TrainedAt > 0 {
		last = s.origin.Add(st.TrainedAt.Duration()).UTC().Format(stamp) + "+00:00"
	}
	return map[string]any{"training_data": counts(st.Train), "test_data": counts(st.Test),
		"bucket_distribution": buckets, "model_ready": true, "last_retrain": last,
		"metrics": map[string]int{"ttft_scores_count": len(st.Scores[0]), "tpot_scores_count": len(st.Scores[1])},
		"ensemble": map[string]any{"ensemble_mode": o.Ensemble, "ensemble_active": st.Models.Gated(),
			"min_samples_for_split": o.MinSplit,
			"ttft_noqueue_samples":  st.Unqueued[0], "ttft_queued_samples": st.Queued[0],
			"tpot_noqueue_samples": st.Unqueued[1], "tpot_queued_samples": st.Queued[1]}}, nil
}

// info lists the files to download. As an addition to the real server's answer, it has the base scores, which the
// dumps of trees lack.
func (s *Server) info(http.ResponseWriter, *http.Request) (any, error) {
	m := s.models.Load()
	bases := map[string]any{}
	for _, t := range []core.Target{core.TTFT, core.TPOT} {
		if x, err := xgboost.Read(m.Text(core.Name(t.String()))); err == nil {
			bases[t.String()] = x.Base
		}
	}
	st := s.Status()
	return s.about(map[string]any{"library": m.Library(), "base_scores": bases,
		"available_endpoints": map[string]any{
			"trees": map[string]string{"ttft_trees": "/model/ttft/xgb/json", "tpot_trees": "/model/tpot/xgb/json"}},
		"model_status":    map[string]bool{"ttft_model_ready": true, "tpot_model_ready": true},
		"evaluation_info": map[string]any{"last_retrain_failed": st.Failed, "trainings": st.Trainings}}), nil
}

// dump returns the trees as Booster.get_dump writes them. That form has no base_score, so the header x-base-score has
// it.
func (s *Server) dump(w http.ResponseWriter, t core.Target) (any, error) {
	text := s.models.Load().Text(core.Name(t.String()))
	if text == nil {
		return []any{}, nil // before the first training there are no trees
	}
	m, err := xgboost.Read(text)
	if err != nil {
		return nil, err
	}
	w.Header().Set("X-Base-Score", strconv.FormatFloat(float64(m.Base), 'g', -1, 32))
	return m.Dump(), nil
}

// modelNames maps the API's names of models to the core's.
var modelNames = map[string][]core.Name{"ttft": {core.ModelTTFT}, "tpot": {core.ModelTPOT}, "ttft_scaler": nil,
	"tpot_scaler": nil,
	"ttft_gated":  {core.ModelTTFTNoqueue, core.ModelTTFTQueued},
	"tpot_gated":  {core.ModelTPOTNoqueue, core.ModelTPOTQueued}}

// fileOf returns a model's file: the library's JSON, or for a gated model one object with both parts.
func (s *Server) fileOf(name string) ([]byte, error) {
	names, known := modelNames[name]
	if !known {
		return nil, notFound("Unknown model: %.60s", name)
	}
	m := s.models.Load()
	out := map[string]json.RawMessage{}
	for _, n := range names {
		if text := m.Text(n); text != nil {
			out[string(n)] = text
		}
	}
	if len(out) == 0 || len(out) < len(names) {
		return nil, nil
	}
	if len(names) == 1 {
		return out[name], nil
	}
	return json.Marshal(out)
}

// named returns the name and the file of the model in a request's path.
func (s *Server) named(r *http.Request) (name string, text []byte, err error) {
	name = r.PathValue("name")
	text, err = s.fileOf(name)
	if err == nil && text == nil {
		err = notFound("Model %s not found", name)
	}
	return name, text, err
}

func (s *Server) modelInfo(_ http.ResponseWriter, r *http.Request) (any, error) {
	name, text, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var alpha any
	if name == "ttft" || name == "tpot" {
		_, alpha = s.objective()
	}
	return map[string]any{"model_name": name, "path": name + ".json", "size_bytes": len(text),
		"last_modified": loaded(s.models.Load(), "+00:00"), "exists": true,
		"model_type": modelType, "quantile": alpha}, nil
}

func (s *Server) download(w http.ResponseWriter, r *http.Request) (any, error) {
	name, text, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return nil, file(w, name+".json", "application/octet-stream", text)
}

func (s *Server) list(http.ResponseWriter, *http.Request) (any, error) {
	out := map[string]any{}
	for name := range modelNames {
		text, err := s.fileOf(name)
		if err != nil {
			return nil, err
		}
		x := map[string]any{"exists": text != nil, "size_bytes": len(text), "last_modified": nil}
		if text != nil {
			x["last_modified"] = loaded(s.models.Load(), "+00:00")
		}
		out[name] = x
	}
	_, alpha := s.objective()
	return map[string]any{"models": out, "model_type": modelType, "quantile": alpha,
		"server_time": time.Now().UTC().Format(stamp) + "+00:00", "evaluation_metrics": map[string]any{}}, nil
}

func (s *Server) export(w http.ResponseWriter, _ *http.Request) (any, error) {
	m, st := s.models.Load(), s.Status()
	if !m.Ready(core.TTFT) || !m.Ready(core.TPOT) {
		return nil, notReady()
	}
	_, alpha := s.objective()
	meta, err := json.Marshal(
		map[string]any{"model_type": modelType, "quantile_alpha": alpha,
			"exported_at":  time.Now().UTC().Format(stamp) + "+00:00",
			"ttft_samples": st.Train[0], "tpot_samples": st.Train[1]})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range []struct {
		name string
		text []byte
	}{{"ttft.json", m.Text(core.ModelTTFT)}, {"tpot.json", m.Text(core.ModelTPOT)}, {"metadata.json", meta}} {
		err = errors.Join(err, t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}))
		_, bad := t.Write(f.text)
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return nil, err
	}
	return nil, file(w, "seed-model.tar.gz", "application/gzip", b.Bytes())
}

// byPrefix returns the samples' observed times to first token in four buckets, by the fraction of the prompt that was
// cached.
func (s *Server) byPrefix() (times [4][]float64, scores []float64) {
	s.locked(func(m *core.Machine) {
		m.EachTTFT(func(x *core.Sample) {
			b := min(int(x.Prefix*4), 3)
			times[b] = append(times[b], x.TTFTMs)
			scores = append(scores, x.Prefix)
		})
	})
	for _, t := range times {
		slices.Sort(t)
	}
	return times, scores
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

func (s *Server) prefixes(http.ResponseWriter, *http.Request) (any, error) {
	times, scores := s.byPrefix()
	if len(scores) == 0 {
		return map[string]string{"error": "No training data"}, nil
	}
	out := map[string]any{"total_samples": len(scores), "prefix_score_mean": mean(scores),
		"prefix_score_min": slices.Min(scores), "prefix_score_max": slices.Max(scores)}
	for b, t := range times {
		if len(t) > 0 {
			out[fmt.Sprintf("bucket_%d", b)] = map[string]any{"count": len(t), "ttft_mean": mean(t),
				"ttft_median": t[len(t)/2]}
		}
	}
	return out, nil
}

// metrics writes the real trainer's lines, which have neither HELP nor TYPE.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	st := s.Status()
	o := st.Models.Options()
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	flag := map[bool]int{true: 1}
	line(`model_type{type="%s"} 1`, modelType)
	line(`objective_type{type="%s"} 1`, o.Objective)
	line(`model_quantile{} %v`, o.Alpha)
	line(`ensemble_active{} %d`, flag[st.Models.Gated()])
	line(`ensemble_mode{} %d`, flag[o.Ensemble])
	for _, t := range []core.Target{core.TTFT, core.TPOT} {
		line(`%s_intercept{} 0.0`, t)
		if m, err := xgboost.Read(st.Models.Text(core.Name(t.String()))); err == nil {
			columns := o.Columns(t, false)
			for i, v := range m.Importances() {
				line(`%s_importance{feature="%s"} %.6f`, t, columns[i].Name, v)
			}
		}
	}
	filled := map[[3]int]core.Bucket{}
	for _, x := range st.Buckets {
		filled[[3]int{x.Queue, x.Cache, x.Prefix}] = x
	}
	for _, t := range []core.Target{core.TTFT, core.TPOT} {
		var queue [5]int
		var cache [20]int
		var prefix [4]int
		for q := range queue {
			for c := range cache {
				for p := range prefix {
					x := filled[[3]int{q, c, p}]
					n := x.TTFT
					if t == core.TPOT {
						n = x.TPOT
					}
					queue[q], cache[c], prefix[p] = queue[q]+n, cache[c]+n, prefix[p]+n
					line(`training_samples_count{model="%s",queue_bucket="%d",cache_bucket="%d",prefix_bucket="%d"} %d`,
						t, q, c, p, n)
				}
			}
		}
		for i, n := range queue {
			line(`training_samples_queue_total{model="%s",queue_bucket="%d"} %d`, t, i, n)
		}
		for i, n := range cache {
			line(`training_samples_cache_total{model="%s",cache_bucket="%d"} %d`, t, i, n)
		}
		for i, n := range prefix {
			line(`training_samples_prefix_total{model="%s",prefix_bucket="%d",range="%s"} %d`, t, i, quarter(i), n)
		}
	}
	if times, scores := s.byPrefix(); len(scores) > 0 {
		m, spread := mean(scores), 0.0
		for _, x := range scores {
			spread += (x - m) * (x - m)
		}
		line("prefix_score_mean{} %.6f\nprefix_score_std{} %.6f\nprefix_score_min{} %.6f\nprefix_score_max{} %.6f", m,
			math.Sqrt(spread/float64(len(scores))), slices.Min(scores), slices.Max(scores))
		for i, t := range times {
			if len(t) > 0 {
				line(`avg_ttft_by_prefix{prefix_bucket="%d",range="%s"} %.6f`, i, quarter(i), mean(t))
				line(`median_ttft_by_prefix{prefix_bucket="%d",range="%s"} %.6f`, i, quarter(i), t[len(t)/2])
			}
		}
	}
	for i, t := range []core.Target{core.TTFT, core.TPOT} {
		for idx, x := range st.Scores[i] {
			if o.Objective == core.Mean {
				line(`%s_mae{idx="%d"} %.6f`, t, idx, x.MAE)
				line(`%s_rmse{idx="%d"} %.6f`, t, idx, x.RMSE)
				continue
			}
			line(`%s_quantile_loss{idx="%d"} %.6f`, t, idx, x.QuantileLoss)
			line(`%s_coverage_percent{idx="%d"} %.6f`, t, idx, 100*x.Coverage)
			line(`%s_violation_rate_percent{idx="%d"} %.6f`, t, idx, 100*(1-x.Coverage))
		}
	}
	if o.Objective == core.Quantile {
		line("target_coverage_percent{} %v\ntarget_violation_rate_percent{} %v", 100*o.Alpha, 100*(1-o.Alpha))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // an error means that the client has left
}

func quarter(i int) string { return fmt.Sprintf("%.2f-%.2f", float64(i)/4, float64(i+1)/4) }
