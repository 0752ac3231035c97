package plugins

import (
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/plugins/dataproducer"
)

// latencySLO is latency-slo-admitter: requests below priority zero that no
// endpoint would serve in time are refused.
type latencySLO struct {
	named
	latency *dataproducer.Predicted
}

func newLatencySLO(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	a := &latencySLO{}
	var ps struct {
		Producer string `json:"latencyPredictionInfoProducerName"`
	}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	dataproducer.FindPredicted(b, ps.Producer, name, &a.latency)
	return a, nil
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

func newProbabilistic(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	def := flowcontrol.DefaultProbabilistic()
	ps := struct {
		Queue int     `json:"queueDepthThreshold"`
		KV    float64 `json:"kvCacheUtilThreshold"`
		Power float64 `json:"power"`
		K     float64 `json:"k"`
	}{def.QueueDepthThreshold, def.KVCacheUtilThreshold, def.Power, def.K}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	a := &probabilistic{named{}, flowcontrol.Probabilistic{
		QueueDepthThreshold: ps.Queue, KVCacheUtilThreshold: ps.KV, Power: ps.Power, K: ps.K}}
	if err := a.Validate(); err != nil {
		return nil, p.Errorf("%v", err)
	}
	return a, nil
}

// Admit draws.
func (a *probabilistic) Admit(c *picker.Cycle) error {
	if c.Request.Objective.Priority >= 0 {
		return nil
	}
	d := c.Draw("probabilistic-admitter")
	return a.Probabilistic.Admit(c.Request.Objective.Priority, loads(c.View, c.Candidates, nil), d.Float64())
}
