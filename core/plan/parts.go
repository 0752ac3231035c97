package plan

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
)

// Deployment is servers of a pool that are alike and whose number may change.
type Deployment struct {
	// Group is the group's name, "" where the pool has none.
	Group string
	// First is the index of its first server. Config.Places is how many indexes it has, since servers that leave
	// keep theirs for a while, and Config.Replicas how many serve from the beginning.
	First  int
	Config deployment.Config
	// Scaler changes their number; nil: only incidents do.
	Scaler *autoscaler.Config
}

// Frontend is NVIDIA Dynamo's frontend with its router.
type Frontend struct {
	Router dynamo.Config
	Seed   uint64
	// PushInterval is how often workers push how they are, RoundTrip how long a question and its answer take.
	PushInterval, RoundTrip time.Duration
}

// NewRouter returns a router that knows no worker.
func (f *Frontend) NewRouter() *dynamo.Router {
	return dynamo.NewRouter(f.Router, f.Seed, at(f.PushInterval))
}

// Worker describes what the server pushes of itself to a Dynamo frontend.
func (s *Server) Worker(st engine.Stats, blocks int) dynamo.Worker {
	w := dynamo.Worker{ID: dynamo.IDOf(s.Name), Role: dynamo.Decode, Requests: st.Running + st.Waiting, Blocks: blocks}
	if s.Prefills() {
		w.Role = dynamo.Prefill
	}
	return w
}

// Predictor is llm-d's latency predictor.
type Predictor struct {
	Options predictor.Options
	// Train says that it learns in the run; Models describe what it begins with.
	Train  bool
	Models *predictor.Models
}

// NewMachine returns the predictor as a run begins.
func (p *Predictor) NewMachine() *predictor.Machine { return predictor.New(p.Options, p.Models) }

// Service is where the picker finds it: the address of a server of each kind.
func (p *Predictor) Service(prediction, training string) *picker.PredictorService {
	s := &picker.PredictorService{Prediction: []string{"http://" + prediction}}
	if p.Train {
		s.Training = "http://" + training
	}
	return s
}
