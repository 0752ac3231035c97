package stack

import (
	"context"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/predictor"
)

// Fitter fits the trees of a latency predictor.
type Fitter func(ctx context.Context, f core.Fit) core.Fitted

// startPredictor starts the latency predictor, if there is one and a function to fit its trees.
func (s *Pool) startPredictor(context.Context) error {
	p := s.pool.Predictor
	if p == nil || p.Train && s.o.Fit == nil {
		return nil
	}
	var err error
	s.Predictor, err = predictor.Start(
		predictor.Options{Training: anyPort, Prediction: []string{anyPort}, Machine: p.NewMachine(),
			Fit: s.o.Fit, Now: s.Now, Log: s.o.Log,
			Trained: func(at machine.Time, st core.Status) {
				if s.o.Recorder != nil {
					s.o.Recorder.Record(st.Event(at))
				}
			}})
	if err == nil {
		s.o.Log.Info("the latency predictor serves", "where", s.Predictor.String())
	}
	return err
}

// predicts has the addresses of the predictor for the picker; nil if there is none.
func (s *Pool) predicts() *picker.PredictorService {
	if s.Predictor == nil {
		return nil
	}
	return s.pool.Predictor.Service(s.Predictor.PredictionAddresses()[0], s.Predictor.TrainingAddress())
}
