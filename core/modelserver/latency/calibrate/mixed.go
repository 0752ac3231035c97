package calibrate

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// planMixed adds probes of steps in which a prompt is computed while others decode. From them, the table gets the share
// of a prompt's time that it takes beside the tokens.
func (p *Plan) planMixed() {
	batches, lengths := p.limits.batches(), p.limits.prompts()
	for _, b := range slices.Compact([]int{batches[0], batches[len(batches)/2], batches[len(batches)-1]}) {
		for k := 2; k <= 4 && k <= len(lengths); k++ {
			p.mixed(b, lengths[len(lengths)-k], false)
		}
	}
	if len(batches) > 2 {
		p.mixed(batches[len(batches)/2-1], (lengths[len(lengths)-2]+lengths[len(lengths)-1])/2, true)
		p.mixed(batches[len(batches)-2], (lengths[max(len(lengths)-3, 0)]+lengths[len(lengths)-2])/2, true)
	}
}

// mixed adds a prompt of a given length that joins a batch while it decodes.
func (p *Plan) mixed(batch, prompt int, heldOut bool) {
	context := p.limits.contexts()[0]
	prompt = min(prompt, p.limits.MaxPrompt-batch) // both share the token budget of one step
	if prompt < leastPrompt {
		return
	}
	x := Probe{Name: fmt.Sprintf("a prompt of %d tokens beside %d at once of %d tokens", prompt, batch, context),
		Requests: batch, Prompt: context,
		Tokens: window + 2 + (batch*context+2047)/2048, Later: []Send{{Prompt: prompt, Tokens: 1}}, kind: mixed,
		heldOut: heldOut}
	p.list = append(p.list, x)
}

// joined returns the step that a prompt shared with a decoding batch: the longest gap of each request, which ends when
// the prompt's first token arrives. It returns false if not all of them were decoding when the prompt came.
func joined(arrived [][]machine.Time, prompt int) (step, bool) {
	batch, first := arrived[:len(arrived)-1], arrived[len(arrived)-1][0]
	var gaps []float64
	tokens := 0.0
	for _, list := range batch {
		at, _ := slices.BinarySearch(list, first)
		// The tokens of one step arrive at about the same time: the gap that ends nearest is the step's.
		if at > 1 && (at == len(list) || first-list[at-1] < list[at]-first) {
			at--
		}
		if at < 2 || at+1 >= len(list) {
			return step{}, false
		}
		gap, where := machine.Time(0), at
		for i := at - 1; i <= at+1; i++ {
			if d := list[i] - list[i-1]; d > gap {
				gap, where = d, i
			}
		}
		gaps = append(gaps, float64(gap))
		tokens += float64(prompt + where)
	}
	return step{context: tokens / float64(len(batch)), took: median(gaps)}, true
}
