package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// latencySLO is latency-slo-admitter: requests below priority zero that no
// endpoint would serve in time are refused.
type latencySLO struct {
	named
	Producer string `json:"latencyPredictionInfoProducerName"`

	latency *dataproducer.Predicted
}

// Complete implements picker.Completer.
func (a *latencySLO) Complete(b *picker.Builder, name string) {
	dataproducer.FindPredicted(b, a.Producer, name, &a.latency)
}

// Admit asks the predictions.
func (a *latencySLO) Admit(c *picker.Cycle) error {
	r := c.Request
	if r.Objective.Priority >= 0 || !r.HasSLO() {
		return nil
	}
	list := make([]flowcontrol.SLOEndpoint, 0, len(c.Candidates))
	for _, i := range c.Candidates {
		s := c.State(i)
		p := a.latency.Of(c, i)
		list = append(list, flowcontrol.SLOEndpoint{KVUsage: s.KVUsage, Running: int(s.Running), Predicted: p != nil,
			MeetsSLO: p != nil && p.Valid})
	}
	return flowcontrol.AdmitLatencySLO(r.Objective.Priority, r.TTFTMs, r.TPOTMs, list)
}

// probabilistic is probabilistic-admitter: requests below priority zero are
// dropped the more often the fuller the candidates are.
type probabilistic struct {
	named
	flowcontrol.Probabilistic
}

var newProbabilistic = picker.Of(probabilistic{Probabilistic: flowcontrol.DefaultProbabilistic()})

// Configure implements picker.Configurer.
func (a *probabilistic) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	return p.Locate(a.Validate())
}

// Admit draws.
func (a *probabilistic) Admit(c *picker.Cycle) error {
	if c.Request.Objective.Priority >= 0 {
		return nil
	}
	d := c.Draw("probabilistic-admitter")
	return a.Probabilistic.Admit(c.Request.Objective.Priority, loads(c.View, c.Candidates, nil), d.Float64())
}
