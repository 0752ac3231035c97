package cluster

import (
	"context"
	"log/slog"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/predictor"
)

// Run has what all processes of a run share.
type Run struct {
	// Origin is the time from which events count.
	Origin time.Time
	// Recorder receives the events of the run; nil records nothing.
	Recorder record.Recorder
	// Trace, if not nil, makes pickers and sidecars send the traceparents of their spans.
	Trace *tracing.IDs
	Log   *slog.Logger
	// Logs, if not nil, returns the log of one container of a pod, which gets its lines instead of Log.
	Logs func(namespace, pod, container string) *slog.Logger
}

// LogOf returns the log of a container.
func (r *Run) LogOf(namespace, pod, container string) *slog.Logger {
	if r.Logs == nil {
		return r.Log
	}
	return r.Logs(namespace, pod, container)
}

// Now returns the time since the run began.
func (r *Run) Now() machine.Time { return machine.FromDuration(time.Since(r.Origin)) }

// Happens records an event that happens now.
func (r *Run) Happens(e record.Event) {
	if r.Recorder != nil {
		e.Time = r.Now()
		r.Recorder.Record(e)
	}
}

// remembered is the number of latest decisions that a picker's page shows.
const remembered = 1000

// Picker sets the options that the endpoint pickers of all runs have.
func (r *Run) Picker(o *epp.StandaloneOptions) {
	o.Origin, o.AllowExperimental, o.History, o.Log = r.Origin, true, remembered, r.Log
	k := &o.Picking
	k.Stream.Recorder, k.Stream.Trace, k.DocumentHeaders, k.EmitScores = r.Recorder, r.Trace, true, true
}

// Fitter fits the trees of a latency predictor. It returns early when ctx ends.
type Fitter = func(ctx context.Context, f core.Fit) core.Fitted

// StartPredictor starts a latency predictor whose training server and prediction servers listen at these addresses.
// With fit nil, it never learns.
func (r *Run) StartPredictor(m *core.Machine, fit Fitter, training string, prediction ...string) (*predictor.Server,
	error) {
	s, err := predictor.Start(predictor.Options{Training: training, Prediction: prediction, Machine: m, Fit: fit,
		Now: r.Now, Trained: func(_ machine.Time, st core.Status) { r.Happens(st.Event(0)) }, Log: r.Log})
	if err == nil {
		r.Log.Info("the latency predictor serves", "where", s.String())
	}
	return s, err
}
