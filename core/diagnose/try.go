package diagnose

import (
	"fmt"
	"strings"
)

// bad returns the share of the requests that fail or miss their objectives. Without both figures, it counts symptoms.
func (f *Facts) bad() float64 {
	out := f.value(Failures)
	if x := f.least(Attainment); x != nil {
		out = max(out, 1-x.Value)
	}
	return out + float64(len(f.Symptoms))
}

// Compare returns the effect of a change of a scenario, from the facts before and after it. The change helps if it
// removes at least half of what is bad.
func Compare(change string, before, after *Facts) Trial {
	t := Trial{Remedy: change, Helps: after.bad() <= before.bad()/2}
	var parts []string
	for _, n := range []Name{Attainment, Failures, Latency90} {
		if b, a := before.most(n), after.most(n); b != nil && a != nil && (n != Failures || b.Value+a.Value > 0) {
			parts = append(parts, fmt.Sprintf("%s %s to %s", words[n][0], n.number(b.Value), n.number(a.Value)))
		}
	}
	if t.Effect = strings.Join(parts, ", "); t.Effect == "" {
		t.Effect = fmt.Sprintf("%d symptoms to %d", len(before.Symptoms), len(after.Symptoms))
	}
	return t
}

// Try plays remedies by a function that returns its trials for a leaf. A remedy that helps makes its finding surer, and
// one that does not makes it only possible. In the tree of high latency, the first leaf with a remedy that helps takes
// the place of the tree's own.
func (d *Diagnosis) Try(f *Facts, play func(Leaf) ([]Trial, error)) error {
	try := func(x *Finding) (helps bool, err error) {
		if x.Tried, err = play(x.Leaf); err != nil || len(x.Tried) == 0 {
			return false, err
		}
		if helps = x.Tried[len(x.Tried)-1].Helps; !helps {
			x.Sure, x.Why = Possible, "its remedies do not help when they are played"
			return false, nil
		}
		x.Why += "; its remedy helps when it is played"
		switch {
		case x.Sure == Possible:
			x.Sure = Likely
		case f.Requests >= certainOf:
			x.Sure = Certain
		}
		return true, nil
	}
	for i := range d.Findings {
		helps, err := try(&d.Findings[i])
		if err != nil {
			return err
		}
		if helps || d.Findings[i].Branch != Latency || len(d.Findings[i].Tried) == 0 {
			continue
		}
		for j := range d.Alternatives {
			helps, err := try(&d.Alternatives[j])
			if err != nil {
				return err
			}
			if helps {
				d.Findings[i], d.Alternatives[j] = d.Alternatives[j], d.Findings[i]
				break
			}
		}
	}
	return nil
}
