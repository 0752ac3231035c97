package diagnose

import (
	"fmt"
	"slices"
	"sort"
)

// Limits of symptoms: the least share of requests that keep their objectives, and the least share that fails. In a run
// with fewer than 100 requests, one failure is enough.
const (
	attained = 0.9
	failing  = 0.01
)

// The thresholds of document 003's tree.
var (
	longQueue = threshold{Queue, 10, false, line(3497)}
	fewHits   = threshold{HitRate, 0.5, true, line(3503)}
	busyGPU   = threshold{GPUUse, 0.95, false, line(3509)}
	slowPick  = threshold{Pick90, 0.010, false, line(3768)}
	slowMove  = threshold{Transfer90, 0.100, false, line(3771)}
	misplaced = threshold{Misplaced, 0.1, false, ""}
	longWay   = threshold{WayShare, 0.5, false, ""}
	indexFull = threshold{IndexUse, 0.9, false, ""}
	slow      = threshold{Latency90, 1, false, line(3495)}
)

const (
	repeats = 0.02 // below this hit rate, no prompt repeats another
	matters = 0.25 // a part of the time to the first token that a remedy can shorten noticeably
	little  = 0.1  // a part of it that is possibly worth shortening, if nothing else explains the symptom
	most    = 0.5
	full    = 0.9 // of a resource; random arrivals never use all of it on average
	// The requests that a certain finding and a likely one need.
	certainOf, likelyOf = 200, 50
)

// Of walks the trees.
func Of(f *Facts) *Diagnosis {
	d := &Diagnosis{Symptoms: slices.Clone(f.Symptoms), Findings: []Finding{}}
	late, failed := d.symptoms(f)
	d.complaints(f, late, failed)
	d.held(f, failed)
	if x, beyond := misplaced.find(f); beyond && late && !failed {
		d.Findings = append(d.Findings, newFinding(EPPConfig, []string{misplaced.text(x, true)}, Likely,
			"the profile that picks the decode server has no filter for its role"))
	}
	d.index(f, late || failed)
	w := walker{Facts: f, Diagnosis: d}
	if len(f.Figures) > 0 { // manifests have none
		w.latency()
	}
	switch {
	case !late && !failed:
		if len(w.crossed) > 0 && f.most(Attainment) == nil {
			d.note("nothing says what a good answer is (slo): thresholds alone are no findings")
		}
		for _, text := range w.crossed {
			d.note("%s, without a symptom", text)
		}
	case late || len(d.Findings) == 0:
		if len(w.leaves) == 0 && len(d.Findings) == 0 {
			w.leaves = w.minor
		}
		if len(w.leaves) > 0 {
			d.Findings, d.Alternatives = append(d.Findings, w.leaves[0]), w.leaves[1:]
		}
		if len(d.Findings) == 0 {
			d.note("no leaf of the trees explains the symptoms")
		}
	}
	// A certain cause comes before what may follow from it.
	sort.SliceStable(d.Findings, func(i, j int) bool {
		return d.Findings[i].Sure == Certain && d.Findings[j].Sure != Certain
	})
	if len(d.Symptoms) == 0 {
		d.Symptoms = []string{}
	}
	return d
}

func (d *Diagnosis) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(d.Notes, text) {
		d.Notes = append(d.Notes, text)
	}
}

// index finds out whether the index of KV blocks gets events, and has the memory for them.
func (d *Diagnosis) index(f *Facts, symptom bool) {
	lacks := f.most(IndexLacks)
	if x := f.least(IndexGot); x != nil && x.Value == 0 && symptom && (lacks == nil || lacks.Value >= most) {
		evidence := []string{x.String()}
		if lacks != nil {
			evidence = append(evidence, lacks.String())
		}
		d.Findings = append(d.Findings, newFinding(NoKVEvents, evidence, Likely, "an index without events is empty"))
	}
	switch x, beyond := indexFull.find(f); {
	case beyond && symptom:
		d.Findings = append(d.Findings, newFinding(IndexMemory, []string{indexFull.text(x, true)}, Likely,
			"beyond the threshold"))
	case beyond:
		d.note("%s, without a symptom", indexFull.text(x, true))
	}
}

// symptoms finds out what is wrong: requests that are late, and requests that fail.
func (d *Diagnosis) symptoms(f *Facts) (late, failed bool) {
	late = len(f.Symptoms) > 0
	t := threshold{Attainment, attained, true, ""}
	if x, beyond := t.find(f); beyond {
		late = true
		d.Symptoms = append(d.Symptoms, x.String())
	}
	if x := f.most(Failures); x != nil && x.Value > 0 && (x.Value >= failing || f.Requests < 100) {
		if f.Excused {
			d.note("%s, as the scenario expects", x)
			return late, false
		}
		failed = true
		d.Symptoms = append(d.Symptoms, x.String())
	}
	return late, failed
}

// walker walks the tree of high latency.
type walker struct {
	*Facts
	*Diagnosis
	leaves  []Finding
	minor   []Finding // beyond a threshold, with too small a part of the time to be leaves
	crossed []string  // thresholds, in words
}

// at checks a threshold, and notes the result in the walk.
func (w *walker) at(t *threshold) (x *Figure, beyond bool) {
	x, beyond = t.find(w.Facts)
	switch {
	case x == nil:
		w.Walk = append(w.Walk, words[t.of][0]+": unknown")
		return nil, false
	case beyond && !(t == &fewHits && x.Value < repeats):
		w.crossed = append(w.crossed, t.text(x, true))
	}
	w.Walk = append(w.Walk, t.text(x, beyond))
	return x, beyond
}

// leaf adds a leaf with the figures that led to it.
func (w *walker) leaf(l Leaf, t *threshold, x *Figure, also ...*Figure) {
	evidence := []string{t.text(x, true)}
	for _, a := range also {
		if a != nil {
			evidence = append(evidence, a.String())
		}
	}
	n, far := w.Requests, t.far(x)
	sure, why := Likely, "beyond the threshold"
	switch {
	case n < likelyOf:
		sure, why = Possible, "too few to be sure"
	case far >= 1 && n >= certainOf:
		sure, why = Certain, "far beyond the threshold"
	case far < 0.1:
		sure, why = Possible, "near the threshold"
	}
	w.leaves = append(w.leaves, newFinding(l, evidence, sure, fmt.Sprintf("%s (%d requests)", why, n)))
}

func newFinding(l Leaf, evidence []string, sure Certainty, why string) Finding {
	c, _ := CauseOf(l)
	return Finding{Leaf: l, Branch: c.Branch, Cause: c.Text, Source: c.Source, Evidence: evidence,
		Remedies: slices.Clone(c.Remedies), Sure: sure, Why: why}
}

// latency walks the tree: queue, cache, GPU, picker, network. Each check also asks whether its part of the time is
// worth shortening. Leaves after the first are alternatives, should the first not hold.
func (w *walker) latency() {
	w.at(&slow)
	// Without a time to the first token, the shares are unknown, and the checks count alone.
	known := w.most(Latency90) != nil
	part := func(names ...Name) bool {
		sum := 0.0
		for _, n := range names {
			sum += w.value(n)
		}
		return !known || sum >= matters
	}
	tokens := w.value(MissedTPOT) >= 1-attained
	moving := w.value(MoveShare) >= most
	if x, beyond := w.at(&longQueue); beyond && !moving {
		w.overloaded(&longQueue, x)
	} else if t := (threshold{QueuePeak, longQueue.limit, false, longQueue.from}); !beyond && !moving &&
		w.value(QueueShare) >= most {
		if x, beyond := t.find(w.Facts); beyond {
			w.overloaded(&t, x)
		}
	}
	if x, beyond := w.at(&fewHits); beyond {
		switch {
		case x.Value < repeats:
			w.note("%s: no prompt repeats the beginning of another, or no cache holds it", x)
		case part(WorkShare, QueueShare) || tokens:
			if w.Conversational {
				w.leaf(SessionAffinity, &fewHits, x, w.most(WorkShare))
			}
			w.leaf(CacheWeight, &fewHits, x, w.most(WorkShare))
		}
	}
	if x, beyond := w.at(&busyGPU); beyond && (part(WorkShare, QueueShare) || tokens) {
		prompts := w.most(PromptUse)
		if prompts != nil && prompts.Value >= matters && w.value(MissedTPOT) > w.value(MissedTTFT) &&
			!w.Disaggregated {
			w.leaf(Disaggregate, &busyGPU, x, prompts, w.most(MissedTPOT))
		}
		w.leaf(MoreGPUs, &busyGPU, x, prompts)
	}
	for _, of := range []struct {
		leaf  Leaf
		t     *threshold
		share Name
	}{{EPPTime, &slowPick, PickShare}, {RDMA, &slowMove, MoveShare}} {
		x, beyond := w.at(of.t)
		if known && w.value(of.share) < little || !beyond {
			continue
		}
		w.leaf(of.leaf, of.t, x, w.most(of.share))
		if n := len(w.leaves) - 1; !part(of.share) {
			w.minor, w.leaves = append(w.minor, w.leaves[n]), w.leaves[:n]
			w.minor[len(w.minor)-1].Sure, w.minor[len(w.minor)-1].Why = Possible, "a small part of the time"
		}
	}
	if x, beyond := w.at(&longWay); beyond {
		w.leaf(Network, &longWay, x)
	}
	// A part that takes most of the time comes before thresholds that are crossed beside it.
	sort.SliceStable(w.leaves, func(i, j int) bool {
		return w.prevails(w.leaves[i].Leaf) && !w.prevails(w.leaves[j].Leaf)
	})
}

// prevails reports whether a leaf's own part takes most of the time to the first token.
func (w *walker) prevails(l Leaf) bool {
	of := map[Leaf]Name{EPPTime: PickShare, RDMA: MoveShare, Network: WayShare}[l]
	return of != "" && w.value(of) >= most
}

// overloaded finds out what requests wait for.
func (w *walker) overloaded(t *threshold, x *Figure) {
	batch, kv := w.most(BatchUse), w.most(KVUse)
	switch least := w.most(QueueLeast); {
	case least != nil && least.Value < 1 && w.value(Balance) >= 2:
		w.leaf(ScorerWeights, t, x, least, w.most(Balance))
	case batch != nil && batch.Value >= full && kv != nil && kv.Value < most && w.value(Preempted) == 0:
		w.leaf(MaxNumSeqs, t, x, batch, kv)
	}
	w.leaf(ScaleUp, t, x, batch, kv, w.most(GPUUse))
}
