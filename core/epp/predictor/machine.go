package predictor

import (
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Objectives of training.
const (
	Mean     = "mean"
	Quantile = "quantile"
)

// Options are a predictor's settings, each with the name of the real trainer's variable LATENCY_….
type Options struct {
	Objective string  `json:"objective"` // OBJECTIVE_TYPE
	Alpha     float64 `json:"quantile"`  // QUANTILE_ALPHA
	// Interval is the time from the end of one training to the next (RETRAINING_INTERVAL_SEC).
	Interval machine.Time `json:"retrainingInterval"`
	// MinSamples is the number of a target's samples that training needs (MIN_SAMPLES_FOR_RETRAIN, or …_FRESH).
	MinSamples int     `json:"minSamples"`
	BucketSize int     `json:"bucketSize"` // MAX_TRAINING_DATA_SIZE_PER_BUCKET
	TestRatio  float64 `json:"testRatio"`  // TEST_TRAIN_RATIO
	MaxTest    int     `json:"maxTest"`    // MAX_TEST_DATA_SIZE
	Ensemble   bool    `json:"ensemble"`   // ENSEMBLE_MODE
	MinSplit   int     `json:"minSplit"`   // MIN_SAMPLES_FOR_ENSEMBLE_SPLIT
	ZeroTokens bool    `json:"zeroTokens"` // TPOT_ZERO_TOKEN_COUNT
	// TokensInFlight and Encoder add columns (ENABLE_TOKEN_IN_FLIGHT_FEATURES, ENABLE_ENCODER_FEATURES).
	TokensInFlight bool   `json:"tokensInFlight"`
	Encoder        bool   `json:"encoder"`
	Seed           uint64 `json:"seed"`
}

// DefaultOptions returns the options of the real deployment's chart. It starts without a model and trains every ten
// seconds, from ten samples on, for the mean.
func DefaultOptions() Options {
	return Options{Objective: Mean, Alpha: .9, Interval: 10 * machine.Second, MinSamples: 10, BucketSize: 500,
		TestRatio: .1, MaxTest: 1000,
		Ensemble: true, MinSplit: 200, ZeroTokens: true, TokensInFlight: true, Encoder: true}
}

// maxBucket bounds what a bucket may hold: memory grows with it.
const maxBucket = 10_000

// Check returns which option cannot be.
func (o *Options) Check() error {
	switch {
	case o.Objective != Mean && o.Objective != Quantile:
		return fmt.Errorf("objective: found %.40q; expected %s or %s", o.Objective, Mean, Quantile)
	case !(o.Alpha > 0 && o.Alpha < 1):
		return fmt.Errorf("quantile: found %v; expected a number between 0 and 1", o.Alpha)
	case o.Interval < machine.Millisecond:
		return fmt.Errorf("retrainingInterval: found %v; expected at least 1ms", o.Interval)
	case o.MinSamples < 1 || o.MinSplit < 1:
		return fmt.Errorf("minSamples, minSplit: found %d and %d; expected at least 1", o.MinSamples, o.MinSplit)
	case o.BucketSize < 1 || o.BucketSize > maxBucket || o.MaxTest < 0 || o.MaxTest > maxBucket:
		return fmt.Errorf("bucketSize, maxTest: found %d and %d; expected 1 to %d", o.BucketSize, o.MaxTest, maxBucket)
	case !(o.TestRatio >= 0 && o.TestRatio < 1):
		return fmt.Errorf("testRatio: found %v; expected a number from 0 to below 1", o.TestRatio)
	}
	return nil
}

// Message is something that enters a Machine.
type Message interface{ message() }

// The messages.
type (
	// Samples were observed. They are checked (Sample.Check).
	Samples struct{ List []Sample }
	// Fitted is the result of a Fit: models as the library wrote them, or the reason for their lack.
	Fitted struct {
		Number  int
		Library string
		Models  map[Name][]byte
		Err     error
	}
	// Flush forgets samples and scores.
	Flush struct{ Train, Test, Scores bool }
)

func (Samples) message() {}
func (Fitted) message()  {}
func (Flush) message()   {}

// Fit is the only effect: the driver fits models and then passes Fitted.
type Fit struct {
	At     machine.Time
	Number int
	Sets   []Set
}

// Due is when the effect was due.
func (f Fit) Due() machine.Time { return f.At }

// Set is the training data of one model. Rows stand one after the other; a NaN is a missing value.
type Set struct {
	Name      Name
	Columns   []Column
	Rows      []float32
	Targets   []float32
	Objective string // of XGBoost
	Alpha     float64
}

// Effects is a Machine's buffer.
type Effects = machine.Effects[Fit]

// Score is a model's error on samples that it was not fitted to.
type Score struct {
	MAE, RMSE float64
	// QuantileLoss and Coverage (a share) are a quantile model's.
	QuantileLoss, Coverage float64
	Samples                int
}

// maxScores is the number of trainings whose scores are kept.
const maxScores = 5

// Machine keeps samples, and decides when models are fitted. It is a machine.Machine[Message, *Effects].
type Machine struct {
	o      Options
	now    machine.Time
	due    machine.Time
	stores [2]store
	seen   uint64 // samples, for the test split
	used   uint64 // of them, at the last training
	types  []string
	models *Models
	fit    int      // the number of the newest
	asked  []string // pod types as the Fit that is out has them; nil where none is
	fits   int      // that succeeded
	failed string   // why the last one did not
	at     machine.Time
	scores [2][]Score
	eval   Predictor
}

// firstCheck is the latest time of the first training.
const firstCheck = 10 * machine.Second

// New begins without samples; models may be trained before.
func New(o Options, models *Models) *Machine {
	m := &Machine{o: o, models: models, due: min(firstCheck, o.Interval), types: slices.Clone(podTypes)}
	if models == nil {
		m.models = Cold(o)
	} else { // what is trained later has the same columns
		m.types = slices.Clone(models.types)
		m.o.TokensInFlight, m.o.Encoder, m.o.ZeroTokens = models.o.TokensInFlight, models.o.Encoder, models.o.ZeroTokens
	}
	return m
}

// Models returns the newest.
func (m *Machine) Models() *Models { return m.models }

// Next returns when training is due.
func (m *Machine) Next() (machine.Time, bool) {
	if m.asked != nil {
		return machine.Never, false
	}
	return m.due, true
}

// Advance plays what is due by now.
func (m *Machine) Advance(now machine.Time, fx *Effects) {
	now = max(now, m.now)
	for m.asked == nil && m.due <= now {
		m.now = max(m.now, m.due)
		m.due = m.due.Add(m.o.Interval)
		m.train(fx)
	}
	m.now = now
}

// Input plays what is due, and takes a message.
func (m *Machine) Input(now machine.Time, msg Message, fx *Effects) {
	m.Advance(now, fx)
	switch x := msg.(type) {
	case Samples:
		for i := range x.List {
			m.take(x.List[i])
		}
	case Fitted:
		m.fitted(&x)
		m.Advance(now, fx)
	case Flush:
		for t := range m.stores {
			if x.Train {
				m.stores[t].train = [buckets]ring{}
			}
			if x.Test {
				m.stores[t].test = ring{}
			}
			if x.Scores {
				m.scores[t] = nil
			}
		}
	}
}

func (m *Machine) take(s Sample) {
	if !slices.Contains(m.types, s.PodType) && len(m.types) < maxPodTypes {
		m.types = append(m.types, s.PodType)
	}
	test := m.forTest()
	for t := range m.stores {
		if s.observed(Target(t)) > 0 {
			m.stores[t].add(s, &m.o, test)
		}
	}
}

// train has models fitted, if there are samples enough.
func (m *Machine) train(fx *Effects) {
	if m.used == m.seen {
		return // nothing is new
	}
	f := Fit{At: m.now, Number: m.fit + 1}
	split := m.o.Ensemble
	for t := range m.stores {
		s := &m.stores[t]
		if s.len() >= m.o.MinSamples {
			f.Sets = append(f.Sets, m.set(names[t], func(*Sample) bool { return true }))
		}
		unqueued, queued := s.split()
		split = split && unqueued >= m.o.MinSplit && queued >= m.o.MinSplit
	}
	if len(f.Sets) == 0 {
		return
	}
	if split && len(f.Sets) == 2 {
		for _, n := range names[2:] {
			f.Sets = append(f.Sets, m.set(n, func(s *Sample) bool { return (s.Waiting == 0) == n.unqueued() }))
		}
	}
	m.fit++
	m.used = m.seen
	m.asked = slices.Clone(m.types)
	fx.Add(f)
}

func (m *Machine) set(n Name, want func(*Sample) bool) Set {
	t := n.Target()
	out := Set{Name: n, Columns: m.o.Columns(t, n.unqueued()), Objective: "reg:squarederror"}
	if m.o.Objective == Quantile {
		out.Objective, out.Alpha = "reg:quantileerror", m.o.Alpha
	}
	m.stores[t].each(func(s *Sample) {
		if !want(s) {
			return
		}
		f := s.Features
		if t == TPOT && m.o.ZeroTokens && !n.gated() {
			f.Generated = 0
		}
		out.Rows = m.o.row(out.Rows, &f, t, n.unqueued(), m.types)
		out.Targets = append(out.Targets, float32(s.observed(t)))
	})
	return out
}

// fitted takes new models. What is wrong with them leaves the old ones.
func (m *Machine) fitted(x *Fitted) {
	if m.asked == nil || x.Number != m.fit {
		return
	}
	types := m.asked
	m.asked = nil
	m.due = m.now.Add(m.o.Interval)
	models, err := m.models, x.Err
	if err == nil {
		models, err = m.models.with(types, x.Library, x.Models)
	}
	if err != nil {
		m.failed = err.Error()
		return
	}
	m.models, m.failed, m.at = models, "", m.now
	m.fits++
	for t := range m.stores {
		m.score(Target(t))
	}
}

func (m *Machine) score(t Target) {
	test := &m.stores[t].test
	if len(test.list) == 0 || !m.models.Ready(t) {
		return
	}
	var s Score
	one := make([]Features, 1)
	out := make([]Prediction, 1)
	test.each(func(x *Sample) {
		one[0] = x.Features
		m.eval.predict(m.models, t, one, out)
		p := out[0].TTFTMs
		if t == TPOT {
			p = out[0].TPOTMs
		}
		off := x.observed(t) - p
		s.MAE += math.Abs(off)
		s.RMSE += float64(off * off)
		s.QuantileLoss += math.Max(m.o.Alpha*off, (m.o.Alpha-1)*off)
		if off <= 0 {
			s.Coverage++
		}
		s.Samples++
	})
	n := float64(s.Samples)
	s.MAE, s.RMSE, s.QuantileLoss, s.Coverage = s.MAE/n, math.Sqrt(s.RMSE/n), s.QuantileLoss/n, s.Coverage/n
	m.scores[t] = append(m.scores[t], s)
	if n := len(m.scores[t]) - maxScores; n > 0 {
		m.scores[t] = slices.Delete(m.scores[t], 0, n)
	}
}

// Bucket is one bucket's samples of a target.
type Bucket struct{ Queue, Cache, Prefix, TTFT, TPOT int }

// Status is a Machine's report about itself.
type Status struct {
	Train, Test      [2]int // samples, by target
	Unqueued, Queued [2]int
	Buckets          []Bucket // that hold any
	Scores           [2][]Score
	Trainings        int // that succeeded
	Training         bool
	TrainedAt        machine.Time // 0 is never
	Failed           string       // why the last one did not; "" if it did
	Models           *Models
}

// Status returns the present status.
func (m *Machine) Status() Status {
	s := Status{Trainings: m.fits, Training: m.asked != nil, TrainedAt: m.at, Failed: m.failed, Models: m.models}
	for t := range m.stores {
		s.Train[t], s.Test[t] = m.stores[t].len(), len(m.stores[t].test.list)
		s.Unqueued[t], s.Queued[t] = m.stores[t].split()
		s.Scores[t] = slices.Clone(m.scores[t])
	}
	for i := range buckets {
		b := Bucket{Queue: i / (cacheBuckets * prefixBuckets), Cache: i / prefixBuckets % cacheBuckets,
			Prefix: i % prefixBuckets,
			TTFT:   len(m.stores[TTFT].train[i].list), TPOT: len(m.stores[TPOT].train[i].list)}
		if b.TTFT+b.TPOT > 0 {
			s.Buckets = append(s.Buckets, b)
		}
	}
	return s
}

// EachTTFT yields the samples with which TTFT is trained, the oldest of each bucket first.
func (m *Machine) EachTTFT(yield func(s *Sample)) { m.stores[TTFT].each(yield) }

// Event returns the record's event of a training that is over: the library, the samples, and the error if it failed.
func (s *Status) Event(at machine.Time) record.Event {
	e := record.Event{Time: at, Hop: record.EPP, Step: record.PredictorTrained,
		Details: record.Details{record.D("training", s.Trainings),
			record.D("ttft_samples", s.Train[TTFT]), record.D("tpot_samples", s.Train[TPOT]),
			record.D("library", s.Models.Library())}}
	if s.Failed != "" {
		e.Details = append(e.Details, record.D("error", s.Failed))
	}
	return e
}
