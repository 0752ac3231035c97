package predictor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// The real servers' ports, on the loopback address.
const (
	DefaultTraining   = "127.0.0.1:8000"
	DefaultPrediction = "127.0.0.1:8001"
)

// Options configure a Server.
type Options struct {
	// Training is the training server's address. Prediction has the addresses of the prediction servers, which all
	// answer alike.
	Training   string
	Prediction []string
	// Machine keeps samples and models. The Server takes ownership of it.
	Machine *core.Machine
	// Fit fits trees. It returns early when ctx ends. With nil, the predictor never learns.
	Fit func(ctx context.Context, f core.Fit) core.Fitted
	// Now is the run's clock; nil starts a new one.
	Now func() machine.Time
	// Trained, if not nil, is called at the end of each training.
	Trained func(at machine.Time, st core.Status)
	Log     *slog.Logger
}

// Server is a running latency predictor.
type Server struct {
	o       Options
	log     *slog.Logger
	origin  time.Time // the time at which Now is 0
	driver  *drive.Driver[core.Message, *core.Effects]
	models  atomic.Pointer[models] // the newest models, read without a lock by predictions
	serving serve.Group
	ctx     context.Context // ends trainings
	cancel  context.CancelFunc
	at      []string // host:port of the training server, then of the prediction servers
}

// models are the models in use, and the time since when.
type models struct {
	*core.Models
	loaded time.Time // zero before the first training
}

// Start starts a predictor. Stop stops it.
func Start(o Options) (*Server, error) {
	s := &Server{o: o, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
	if o.Now == nil {
		began := time.Now()
		s.o.Now = func() machine.Time { return machine.FromDuration(time.Since(began)) }
	}
	s.origin = time.Now().Add(-s.o.Now().Duration())
	s.serving.Log = s.log
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.models.Store(&models{Models: o.Machine.Models()})
	s.driver = drive.New(drive.Options[core.Message, *core.Effects]{Machine: o.Machine, Effects: new(core.Effects),
		Now:   s.o.Now,
		Carry: func(_ machine.Time, fx *core.Effects, i int) { s.fit(fx.List[i]) }})
	for i, at := range append([]string{o.Training}, o.Prediction...) {
		what, h := "the latency predictor's training server", s.training()
		if i > 0 {
			what, h = "the latency predictor's prediction server", s.prediction()
		}
		at, err := s.serving.Serve(what, at, serve.Pages(h, s.log))
		if err != nil {
			return nil, errors.Join(err, s.Stop(context.Background()))
		}
		s.at = append(s.at, at)
	}
	return s, nil
}

// Failed receives the error of a listener that ended by itself.
func (s *Server) Failed() <-chan error { return s.serving.Failed() }

// TrainingAddress returns the training server's host:port, with its actual port.
func (s *Server) TrainingAddress() string { return s.at[0] }

// PredictionAddresses returns the prediction servers' host:port, with their actual ports.
func (s *Server) PredictionAddresses() []string { return s.at[1:] }

// Stop stops the servers and a training in progress.
func (s *Server) Stop(ctx context.Context) error {
	err := s.serving.Stop(ctx)
	s.driver.Quiet()
	s.cancel()
	s.serving.Wait()
	return err
}

// fit starts a training in a goroutine of its own.
func (s *Server) fit(f core.Fit) {
	if s.o.Fit == nil {
		return // the machine then asks for no other training
	}
	s.serving.Go("training", func() error {
		began := time.Now()
		out := s.o.Fit(s.ctx, f)
		if s.ctx.Err() != nil {
			return nil
		}
		s.driver.Input(out)
		var st core.Status
		s.locked(func(m *core.Machine) {
			st = m.Status()
			if m.Models() != s.models.Load().Models {
				s.models.Store(&models{m.Models(), time.Now()})
			}
		})
		if s.o.Trained != nil {
			s.o.Trained(s.o.Now(), st)
		}
		if st.Failed != "" {
			s.log.Error("the latency predictor's training failed; it keeps its models", "error", st.Failed)
		} else {
			s.log.Info("the latency predictor was trained", "ttft_samples", st.Train[0], "tpot_samples", st.Train[1],
				"took", time.Since(began))
		}
		return nil
	})
}

// locked runs f with the machine locked.
func (s *Server) locked(f func(m *core.Machine)) {
	s.driver.With(func(machine.Time, *core.Effects) { f(s.o.Machine) })
}

// Status returns the predictor's current state.
func (s *Server) Status() (out core.Status) {
	s.locked(func(m *core.Machine) { out = m.Status() })
	return out
}

// objective returns the objective that trees are fitted to, as the API names it.
func (s *Server) objective() (kind string, alpha float64) {
	o := s.models.Load().Options()
	return o.Objective, o.Alpha
}

// String returns the addresses, for people.
func (s *Server) String() string {
	return fmt.Sprintf("training on http://%s, predictions on http://%s", s.TrainingAddress(), s.PredictionAddresses())
}
