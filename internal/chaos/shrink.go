package chaos

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
)

// mostShrinks bounds the runs that one failure may take to shrink.
const mostShrinks = 400

// Shrink returns fewer and shorter faults that break the invariant in the same way: first by removing parts of the list
// (delta debugging), then by halving the times that faults last. An interruption ends it early.
func (b *Base) Shrink(ctx context.Context, faults []Fault, broken string) []Fault {
	runs := 0
	fails := func(list []Fault) bool {
		if runs++; runs > mostShrinks || ctx.Err() != nil {
			return false
		}
		o := b.Play(ctx, list)
		return ctx.Err() == nil && class(o.Broken) == class(broken)
	}
	return shrink(faults, fails)
}

// shrink shrinks faults as long as fewer, or shorter ones, fail.
func shrink(faults []Fault, fails func([]Fault) bool) []Fault {
	for parts := 2; len(faults) > 1; {
		size := (len(faults) + parts - 1) / parts
		shorter := false
		for from := 0; from < len(faults) && !shorter; from += size {
			rest := slices.Concat(faults[:from], faults[min(from+size, len(faults)):])
			if shorter = fails(rest); shorter {
				faults, parts = rest, max(parts-1, 2)
			}
		}
		if !shorter {
			if size == 1 {
				break
			}
			parts = min(2*parts, len(faults))
		}
	}
	for i := range faults {
		for x := faults[i].Incident; x != nil && x.For > time.Millisecond; x = faults[i].Incident {
			half := *x
			half.For = (x.For / 2).Round(time.Millisecond)
			list := slices.Clone(faults)
			if list[i].Incident = &half; !fails(list) {
				break
			}
			faults = list
		}
	}
	return faults
}

// class returns an invariant's text without its numbers and names of requests, which differ between runs.
func class(broken string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, broken)
}
