package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/predictor"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Predictor runs the latency predictor alone. It reads the real servers' environment variables; flags take precedence.
type Predictor struct {
	Listen          string   `default:"127.0.0.1" placeholder:"IP" help:"Address to listen on."`
	TrainingPort    int      `default:"8000" placeholder:"N" help:"Port that receives samples; 0 for a free one."`
	PredictionPorts []int    `name:"prediction-port" default:"8001" placeholder:"N" help:"Port that answers with predictions; 0 for a free one. Repeatable."`
	Training        string   `hidden:"" help:"--listen and --training-port in one, as they were before."`
	Prediction      []string `hidden:"" help:"--listen and --prediction-port in one, as they were before."`
	LoadModel       string   `placeholder:"FILE" help:"Trained models to begin with (GET /model/export/json, or windtunnel sim --save-model)."`
	NoTraining      bool     `help:"Never learn: only the models of --load-model predict. Needs no Python."`
	LogLevel        string   `fromenv:"LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error."`
}

func (Predictor) Help() string {
	return `llm-d's latency predictor by itself: a training server receives samples of how long requests took, and
prediction servers predict how long one would take. The XGBoost library fits the trees, in a Python process
that windtunnel starts and watches. Go code evaluates them. The library is installed once, by hash, into
windtunnel's cache.

  windtunnel predictor
  LATENCY_OBJECTIVE_TYPE=quantile windtunnel predictor --prediction-port 8001 --prediction-port 8002
  windtunnel predictor --no-training --load-model latency-model.json

An endpoint picker beside it, with predicted-latency-producer in its configuration, and questions:

  PREDICTION_SERVER_URL=http://127.0.0.1:8001 TRAINING_SERVER_URL=http://127.0.0.1:8000 \
    windtunnel epp --config-file epp.yaml …
  LATENCY_COALESCE_WINDOW_MS=0     there: one question for each request; else one for all within 1 ms
  LATENCY_METRICS_INTERVAL_SEC=60  there: how often it fetches states and trees, as the real one does
  curl localhost:8000/data/status
  curl localhost:8000/metrics
  curl -d '{"requests":[{"kv_cache_percentage":0.3,"input_token_length":900,"num_request_waiting":0,
    "num_request_running":4,"num_tokens_generated":1,"prefix_cache_score":0}]}' localhost:8001/predict/bulk/strict

Environment, with the default values:

  LATENCY_OBJECTIVE_TYPE                        mean    or quantile
  LATENCY_QUANTILE_ALPHA                        0.9     which quantile
  LATENCY_RETRAINING_INTERVAL_SEC               10      seconds from one training to the next
  LATENCY_MIN_SAMPLES_FOR_RETRAIN               10      samples that training needs
  LATENCY_MAX_TRAINING_DATA_SIZE_PER_BUCKET     500     samples that are kept in each of 400 buckets
  LATENCY_TEST_TRAIN_RATIO                      0.1     share of samples that are kept for scores
  LATENCY_MAX_TEST_DATA_SIZE                    1000    the most samples for scores
  LATENCY_ENSEMBLE_MODE                         true    separate models for requests that find an empty queue
  LATENCY_MIN_SAMPLES_FOR_ENSEMBLE_SPLIT        200     samples that each of these needs
  LATENCY_TPOT_ZERO_TOKEN_COUNT                 true    take num_tokens_generated for 0
  LATENCY_ENABLE_TOKEN_IN_FLIGHT_FEATURES       true    columns of tokens in flight
  LATENCY_ENABLE_ENCODER_FEATURES               true    columns of the encoder`
}

// Run serves until an interruption.
func (c *Predictor) Run(o *console.Console) error {
	opts, err := PredictorOptions(o.Env)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return exit.Errorf(exit.Usage, "--log-level %q: expected debug, info, warn or error", c.LogLevel)
	}
	ctx, stop := o.Context()
	defer stop()
	var models *core.Models
	switch {
	case c.LoadModel != "":
		text, err := files.Read(c.LoadModel, core.MaxFileBytes)
		if err == nil {
			models, err = core.Load(text)
		}
		if err != nil {
			return exit.Errorf(exit.Input, "--load-model %s: %w", c.LoadModel, err)
		}
	case c.NoTraining:
		return exit.Errorf(exit.Usage, "--no-training: expected --load-model beside it, the models that predict")
	}
	training, predictions, err := c.addresses(o)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	po := predictor.Options{Training: training, Prediction: predictions, Machine: core.New(opts, models),
		Log: o.Logger(level)}
	if !c.NoTraining {
		t, err := Trainer(ctx, o)
		if err != nil {
			return err
		}
		defer t.Close()
		po.Fit = t.Fit
	}
	s, err := predictor.Start(po)
	if err != nil {
		return exit.ByCause(exit.Environment, err)
	}
	fmt.Fprintf(o.Stderr, "windtunnel predictor: training server on http://%s, predictions on http://%s\n",
		s.TrainingAddress(), strings.Join(s.PredictionAddresses(), ", http://"))
	return serve.Until(ctx, 5*time.Second, s.Failed(), s.Stop)
}

// addresses returns the servers' addresses.
func (c *Predictor) addresses(o *console.Console) (training string, predictions []string, err error) {
	at := func(port int) string {
		err = cmp.Or(err, within("port", port, 0, maxPort))
		return net.JoinHostPort(c.Listen, strconv.Itoa(port))
	}
	training = at(c.TrainingPort)
	for _, port := range c.PredictionPorts {
		predictions = append(predictions, at(port))
	}
	if c.Training != "" {
		oldFlag(o, "--training", "--listen and --training-port")
		training = c.Training
	}
	if len(c.Prediction) > 0 {
		oldFlag(o, "--prediction", "--listen and --prediction-port")
		predictions = c.Prediction
	}
	return training, predictions, err
}

// PredictorOptions returns a latency predictor's defaults, changed by the environment.
func PredictorOptions(env func(string) (string, bool)) (core.Options, error) {
	o := core.DefaultOptions()
	float := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	boolean := func(s string) (bool, error) { return strconv.ParseBool(strings.ToLower(s)) }
	for _, v := range []struct {
		name string
		set  func(string) error
	}{
		{"OBJECTIVE_TYPE", func(s string) error { o.Objective = s; return nil }},
		{"QUANTILE_ALPHA", into(&o.Alpha, float, "a number")},
		{"RETRAINING_INTERVAL_SEC", func(s string) error {
			seconds, err := strconv.ParseFloat(s, 64)
			if err == nil && !(seconds > 0 && seconds < 1e7) {
				err = errors.New("expected a number of seconds above 0")
			}
			o.Interval = machine.Time(seconds * float64(machine.Second))
			return err
		}},
		{"MIN_SAMPLES_FOR_RETRAIN", into(&o.MinSamples, strconv.Atoi, "a whole number")},
		{"MAX_TRAINING_DATA_SIZE_PER_BUCKET", into(&o.BucketSize, strconv.Atoi, "a whole number")},
		{"TEST_TRAIN_RATIO", into(&o.TestRatio, float, "a number")},
		{"MAX_TEST_DATA_SIZE", into(&o.MaxTest, strconv.Atoi, "a whole number")},
		{"ENSEMBLE_MODE", into(&o.Ensemble, boolean, "true or false")},
		{"MIN_SAMPLES_FOR_ENSEMBLE_SPLIT", into(&o.MinSplit, strconv.Atoi, "a whole number")},
		{"TPOT_ZERO_TOKEN_COUNT", into(&o.ZeroTokens, boolean, "true or false")},
		{"ENABLE_TOKEN_IN_FLIGHT_FEATURES", into(&o.TokensInFlight, boolean, "true or false")},
		{"ENABLE_ENCODER_FEATURES", into(&o.Encoder, boolean, "true or false")},
		{"MODEL_TYPE", func(s string) error {
			if s != "xgboost" {
				return errors.New("expected xgboost: there are no other models here")
			}
			return nil
		}},
	} {
		name := "LATENCY_" + v.name
		if s, ok := env(name); ok && s != "" {
			if err := v.set(s); err != nil {
				return o, fmt.Errorf("%s=%.60q: %w", name, s, err)
			}
		}
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("LATENCY_…: %w", err)
	}
	return o, nil
}

// into returns a function that sets a value to a parsed text. Its error says what was expected.
func into[T any](to *T, parse func(string) (T, error), expected string) func(string) error {
	return func(s string) (err error) {
		if *to, err = parse(s); err != nil {
			return errors.New("expected " + expected)
		}
		return nil
	}
}

// predictorService returns the latency predictor's addresses for a picker, from the real one's environment; nil without
// any.
func predictorService(env func(string) (string, bool)) (*picker.PredictorService, error) {
	read := func(name string) (out []string, err error) {
		text, _ := env(name)
		for _, s := range strings.Split(text, ",") {
			if s = strings.TrimSuffix(strings.TrimSpace(s), "/"); s == "" {
				continue
			}
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return nil, fmt.Errorf("%s: found %.100q; expected a URL such as http://127.0.0.1:8001", name, s)
			}
			out = append(out, s)
		}
		return out, nil
	}
	duration := func(name string, n int, unit machine.Time, least int) (machine.Time, error) {
		if text, ok := env(name); ok && text != "" {
			v, err := strconv.Atoi(text)
			if err != nil || v < least || v > 1_000_000 {
				return 0, fmt.Errorf("%s: found %.40q; expected a whole number from %d to 1000000", name, text, least)
			}
			n = v
		}
		return machine.Time(n) * unit, nil
	}
	predictions, err := read("PREDICTION_SERVER_URL")
	if err != nil {
		return nil, err
	}
	training, err := read("TRAINING_SERVER_URL")
	switch {
	case err != nil:
		return nil, err
	case len(training) > 1:
		return nil, fmt.Errorf("TRAINING_SERVER_URL: found %d URLs; expected one", len(training))
	case len(predictions) == 0 && len(training) == 1:
		return nil, errors.New("TRAINING_SERVER_URL is given and PREDICTION_SERVER_URL is not; expected both")
	case len(predictions) == 0:
		return nil, nil
	}
	together, err := duration("LATENCY_COALESCE_WINDOW_MS", 1, machine.Millisecond, 0)
	if err != nil {
		return nil, err
	}
	poll, err := duration("LATENCY_METRICS_INTERVAL_SEC", 60, machine.Second, 1)
	if err != nil {
		return nil, err
	}
	return &picker.PredictorService{Prediction: predictions, Training: strings.Join(training, ""), Together: together,
		Poll: poll}, nil
}

// UpTrainer returns a function that returns what fits the trees of the predictors of manifests, and ends it. Where this
// machine lacks the library that fits models, a predictor takes samples, says so and learns nothing.
func UpTrainer(o *console.Console) func(ctx context.Context) (fit cluster.Fitter, stop func()) {
	return func(ctx context.Context) (cluster.Fitter, func()) {
		t, err := Trainer(ctx, o)
		if err != nil {
			fmt.Fprintf(o.Stderr, "windtunnel: the latency predictor learns nothing: %v\n", err)
			return nil, func() {}
		}
		return t.Fit, t.Close
	}
}

// Trainer returns a trainer with the library that it finds or installs. Its error names what this machine lacks.
func Trainer(ctx context.Context, o *console.Console) (*predictor.Trainer, error) {
	lib, err := predictor.Find(ctx, predictor.FindOptions{
		Getenv: o.Getenv,
		Report: func(what string) { fmt.Fprintf(o.Stderr, "windtunnel: %s\n", what) },
	})
	if err != nil {
		return nil, err
	}
	return &predictor.Trainer{Library: lib}, nil
}
