package calibrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Loads of random arrivals, in percent of the capacity that the table predicts.
var loads = []int{30, 60, 80}

// planTraffic adds probes with Poisson arrivals. Their requests depend on the table, and are computed later.
func (p *Plan) planTraffic() {
	if p.limits.Traffic == 0 {
		return
	}
	for _, load := range loads {
		p.list = append(p.list, Probe{Name: fmt.Sprintf("Poisson at %d%%", load), kind: traffic, heldOut: true,
			load: load})
	}
}

// arrivals computes a traffic probe's requests. It returns false if there is no table to predict the server's capacity.
func (p *Plan) arrivals(x *Probe) bool {
	points, _, err := p.table()
	if err != nil {
		return false
	}
	table, _, _, err := p.fitted(points)
	if err != nil {
		return false
	}
	contexts := p.limits.contexts()
	shortest, longest := contexts[0], contexts[min(1, len(contexts)-1)]
	const fewest, most = 16, 48 // tokens of an answer
	if p.limits.ModelLen > 0 && longest+most > p.limits.ModelLen {
		return false
	}
	batch := p.limits.MaxBatch
	if p.limits.KVTokens > 0 {
		batch = max(1, min(batch, p.limits.KVTokens/(longest+most)))
	}
	mean := (shortest + longest) / 2
	each := table.StepTime(hardware.PrefillStep(int64(mean))).Time() +
		table.StepTime(hardware.DecodeStep(int64(batch), int64(mean))).Time()*(fewest+most)/2/machine.Time(batch)
	gap := float64(each) * 100 / float64(x.load)
	at := machine.Time(0)
	for i := range p.limits.Traffic {
		d := machine.NewDraw(uint64(x.load), "calibrate", "traffic", uint64(i))
		at += machine.Time(-math.Log1p(-float64(d.Intn(1<<30))/(1<<30)) * gap)
		x.Later = append(x.Later,
			Send{At: at, Prompt: shortest + d.Intn(longest-shortest+1), Tokens: fewest + d.Intn(most-fewest+1)})
	}
	return true
}

// figures holds latencies that clients measured, in nanoseconds.
type figures struct{ ttft, itl, e2e []float64 }

func (f *figures) add(sent machine.Time, arrived []machine.Time) {
	f.ttft = append(f.ttft, float64(arrived[0]-sent))
	f.e2e = append(f.e2e, float64(arrived[len(arrived)-1]-sent))
	for i := 1; i < len(arrived); i++ {
		f.itl = append(f.itl, float64(arrived[i]-arrived[i-1]))
	}
}

// predict simulates a traffic probe's requests with the table.
func (p *Plan) predict(table *latency.Table, x *Probe, sent []machine.Time) (f figures, err error) {
	blocks := 1 << 20
	if p.limits.KVTokens > 0 {
		blocks = max(1, p.limits.KVTokens/16)
	}
	e, err := engine.New(engine.Config{Timer: table, MaxNumSeqs: 256, MaxNumBatchedTokens: max(256, p.limits.MaxPrompt),
		MaxModelLen: min(blocks*16, 2*mostPrompt), NumGPUBlocks: blocks})
	if err != nil {
		return f, fmt.Errorf("playing traffic with the table: %w", err)
	}
	arrived := make([][]machine.Time, len(x.Later))
	var fx engine.Effects
	noteTokens := func() {
		for i := range fx.List {
			switch y := &fx.List[i]; y.Kind {
			case engine.FirstToken:
				arrived[y.Request-1] = append(arrived[y.Request-1], y.At)
			case engine.Tokens:
				for k := range int(y.Count) {
					arrived[y.Request-1] = append(arrived[y.Request-1], y.Schedule.End(k+1))
				}
			}
		}
		fx.Reset()
	}
	// A request may slightly overtake one that was sent before: the engine takes them in order of arrival.
	order := make([]int, len(sent))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(max(-1, min(1, sent[a]-sent[b]))) })
	for _, i := range order {
		e.Input(sent[i], &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: x.Later[i].Prompt,
			MaxTokens: x.Later[i].Tokens, IgnoreEOS: true, Interest: engine.EveryToken}, &fx)
		noteTokens()
	}
	for at, more := e.Next(); more; at, more = e.Next() {
		e.Advance(at, &fx)
		noteTokens()
	}
	for i, list := range arrived {
		if len(list) == 0 {
			return f, fmt.Errorf("playing traffic with the table: request %d of %d tokens was not answered", i+1,
				x.Later[i].Prompt)
		}
		f.add(sent[i], list)
	}
	return f, nil
}

// checkTraffic compares the clients' measurements with the table's predictions.
func (p *Plan) checkTraffic(table *latency.Table) (out []HeldOut, err error) {
	for i := range p.seen {
		x := &p.seen[i]
		want, err := p.predict(table, &x.probe, x.sent)
		if err != nil {
			return nil, err
		}
		for _, m := range []struct {
			name       string
			took, want []float64
		}{{"TTFT", x.figures.ttft, want.ttft}, {"ITL", x.figures.itl, want.itl}, {"E2E", x.figures.e2e, want.e2e}} {
			for _, q := range []int{50, 90} {
				at := func(list []float64) machine.Time {
					slices.Sort(list)
					return max(1, machine.Time(list[(len(list)-1)*q/100]))
				}
				out = append(out, HeldOut{Name: fmt.Sprintf("%s, %s p%d", x.probe.Name, m.name, q), Of: Traffic,
					Took: at(slices.Clone(m.took)), Predicted: at(m.want)})
			}
		}
	}
	return out, nil
}
