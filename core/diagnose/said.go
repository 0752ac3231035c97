package diagnose

import (
	"slices"
	"strings"
)

// said maps the words of parts, and of mistakes in manifests, to leaves. All words of an entry occur. The first entry
// that matches counts.
var said = []struct {
	words []string
	leaf  Leaf
}{
	{[]string{"out of host memory"}, HostMemory},
	{[]string{"out of accelerator memory", "activations", "sequences need"}, BatchTooLarge},
	{[]string{"out of accelerator memory", "CUDA graphs of"}, BatchTooLarge},
	{[]string{"out of accelerator memory", "KV cache of"}, KVTooSmall},
	{[]string{"out of accelerator memory"}, ModelTooLarge},

	{[]string{"failed to find endpoint candidates"}, PoolSelector},
	{[]string{"selects the pods of no Deployment"}, PoolSelector},
	{[]string{"scrape_failed", "health-data-source", "refused"}, WrongPort},
	{[]string{"scrape_failed", "etric"}, Scraper},
	{[]string{"ext_proc_error"}, ExtProc},
	{[]string{"(ext_proc)"}, ExtProc},
	{[]string{"targetPorts are"}, WrongPort},
	{[]string{"mistake: ", "plugin"}, EPPConfig},
	{[]string{"mistake: ", "rofiles["}, EPPConfig},

	{[]string{"no such InferencePool"}, PoolName},
	{[]string{"label of a prefill pod"}, PrefillLabels},
	{[]string{"prefiller_blocked", "as every prefiller"}, PoolName},
	{[]string{"prefiller_blocked"}, OutsidePool},

	{[]string{"not one of the servers that this one fetches KV caches from"}, Transport},
	{[]string{"could not be fetched", "in time"}, TransferTimeout},
	{[]string{"could not be fetched", "not held here"}, PrefillerForgot},
	{[]string{"could not be fetched", "refused"}, SideChannel},
	{[]string{"could not be fetched", "no such host"}, SideChannel},
	{[]string{"could not be fetched", "this is engine"}, SideChannel},
	{[]string{"could not be fetched"}, Transport},
	{[]string{"VLLM_NIXL_SIDE_CHANNEL_PORT is", "sideChannelPortRange"}, SideChannel},
	{[]string{"have side channels at ports"}, SideChannel},
	{[]string{"prefill_leg_failed", "in time"}, TransferTimeout},
	{[]string{"prefill_leg_failed"}, Transport},

	{[]string{"no model server sends KV events"}, NoKVEvents},
	{[]string{"nobody receives the events"}, NoKVEvents},
}

// weak are complaints that follow from other causes as well. They count where nothing else is said.
var weak = []struct {
	words []string
	leaf  Leaf
}{
	{[]string{"screeners eliminated all endpoint candidates"}, WrongPort},
	{[]string{"upstream request timeout"}, RequestTimeout}, // Envoy's answer at the end of a route's time
}

// means returns the leaf that a complaint leads to.
func means(list []struct {
	words []string
	leaf  Leaf
}, text string) (Leaf, bool) {
	for _, s := range list {
		if !slices.ContainsFunc(s.words, func(w string) bool { return !strings.Contains(text, w) }) {
			return s.leaf, true
		}
	}
	return "", false
}

// complaints turns what parts said into findings, if requests failed or a file is wrong. A picker without metrics also
// makes requests late.
func (d *Diagnosis) complaints(f *Facts, late, failed bool) {
	add := func(c *Complaint, leaf Leaf) {
		evidence := c.Text
		if c.Count > 0 {
			evidence = c.String()
		}
		if was := d.Leaf(leaf); was != nil {
			if len(was.Evidence) < mostEvidence {
				was.Evidence = append(was.Evidence, evidence)
			}
			if c.Count == 0 {
				was.Sure, was.Why = Certain, byFile
			}
			return
		}
		sure, why := Certain, byFile
		if c.Count > 0 {
			sure, why = Likely, "the part's own words"
			if cause, _ := CauseOf(leaf); cause.Branch == Memory {
				sure, why = Certain, "the server's own arithmetic"
			} else if c.Count >= 20 && float64(c.Count) >= most*float64(f.Requests)*f.value(Failures) {
				sure, why = Certain, "the part's own words, for most of the failures"
			}
		}
		d.Findings = append(d.Findings, newFinding(leaf, []string{evidence}, sure, why))
	}
	quiet := true
	for i := range f.Complaints {
		c := &f.Complaints[i]
		leaf, known := means(said, c.Text)
		switch {
		case !known: // an endpoint that answers its probe with an error listens at the pool's port
			quiet = quiet && !(strings.Contains(c.Text, "health-data-source") && strings.Contains(c.Text, " status "))
		case c.Count > 0 && !failed && !(late && leaf == Scraper):
			d.note("%s, without a symptom", c)
		default:
			quiet = quiet && leaf == Scraper
			add(c, leaf)
		}
	}
	for i := range f.Complaints {
		if leaf, known := means(weak, f.Complaints[i].Text); known && failed && (quiet || d.Leaf(leaf) != nil) {
			add(&f.Complaints[i], leaf)
		}
	}
}

// mostEvidence bounds the complaints that a finding repeats.
const mostEvidence = 4

const byFile = "the files themselves"

// held finds out where held-open requests stop.
func (d *Diagnosis) held(f *Facts, failed bool) {
	part1 := f.most(Part1)
	if part1 == nil || part1.Value == 0 || !failed {
		return
	}
	lost := func(from, to *Figure) bool {
		return from != nil && to != nil && from.Value-to.Value >= max(1, failing*part1.Value)
	}
	there, seen, part2 := f.most(Part1There), f.most(FirstSeen), f.most(Part2)
	add := func(l Leaf, figures ...*Figure) {
		var evidence []string
		for _, x := range figures {
			evidence = append(evidence, x.String())
		}
		sure, why := Likely, "the steps at which requests stop"
		if figures[1].Value == 0 && part1.Value >= 20 {
			sure, why = Certain, "every request stops at this step"
		}
		d.Findings = append(d.Findings, newFinding(l, evidence, sure, why))
	}
	limits := slices.IndexFunc(f.Complaints, func(c Complaint) bool {
		return strings.Contains(c.Text, "hold limit") || strings.Contains(c.Text, "time limit") ||
			strings.Contains(c.Text, "timeout")
	})
	switch {
	case lost(seen, part2):
		add(NoPart2, seen, part2)
	case there == nil && seen != nil && seen.Value == 0, lost(part1, there):
		add(WholeBody, part1, seen)
	case limits >= 0 && lost(there, seen):
		add(RequestTimeout, there, seen)
		x := d.Leaf(RequestTimeout)
		x.Evidence = append(x.Evidence, f.Complaints[limits].String())
	}
}
