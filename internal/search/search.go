// Package search looks for the highest rate, the smallest count and the best share
// where one look costs a simulation, and does not always tell.
package search

import "math"

// Verdict is what runs say of a load, or of a number of servers.
type Verdict int

// The verdicts, the worst first.
const (
	Misses Verdict = iota - 1
	Undecided
	Keeps
)

// Band is what a search ends with: up to Keeps the objective is surely kept, and from
// Misses on surely missed; what lies between nobody can tell. Either is 0 where there
// is none.
type Band struct{ Keeps, Misses float64 }

// Highest finds the band of a rate, from a first guess, to a relative precision.
// judge says of a rate whether the objective is kept; what it says must go from Keeps
// over Undecided to Misses as rates rise. most bounds the search.
func Highest(first, precision, least, most float64, judge func(rate float64) (Verdict, error)) (b Band, err error) {
	unsure := []float64{}
	try := func(rate float64) (Verdict, error) {
		v, err := judge(rate)
		switch {
		case err != nil:
		case v == Keeps:
			b.Keeps = max(b.Keeps, rate)
		case v == Misses:
			if b.Misses == 0 || rate < b.Misses {
				b.Misses = rate
			}
		default:
			unsure = append(unsure, rate)
		}
		return v, err
	}
	rate := min(max(first, least), most)
	v, err := try(rate)
	for up := rate; err == nil && b.Misses == 0 && up < most; {
		up = min(2*up, most)
		_, err = try(up)
	}
	for down := rate; err == nil && b.Keeps == 0 && v != Keeps && down > least; {
		down = max(down/2, least)
		v, err = try(down)
	}
	if err != nil || b.Keeps == 0 || b.Misses == 0 {
		return b, err
	}
	// Between what keeps and what misses; once something in between is undecided, from both
	// sides towards it.
	for err == nil && b.Misses > b.Keeps*(1+precision) {
		low, high := math.Inf(1), 0.0
		for _, u := range unsure {
			if u > b.Keeps && u < b.Misses {
				low, high = min(low, u), max(high, u)
			}
		}
		switch {
		case high == 0:
			_, err = try(math.Sqrt(b.Keeps * b.Misses))
		case low > b.Keeps*(1+precision):
			_, err = try(math.Sqrt(b.Keeps * low))
		case b.Misses > high*(1+precision):
			_, err = try(math.Sqrt(high * b.Misses))
		default:
			return b, nil
		}
	}
	return b, err
}

// Fewest finds the smallest count that keeps the objective, from 1 to most, and
// checks the one above it: 0 where none does. sure is false where the one below is
// undecided, and odd is true where the one above does not keep it.
func Fewest(first, most int, judge func(n int) (Verdict, error)) (n int, sure, odd bool, err error) {
	low, high := 0, 0 // below low none keeps it; high does
	said := map[int]Verdict{}
	try := func(n int) (Verdict, error) {
		if v, ok := said[n]; ok {
			return v, nil
		}
		v, err := judge(n)
		said[n] = v
		return v, err
	}
	for n := min(max(first, 1), most); high == 0; n = min(2*n, most) {
		v, err := try(n)
		switch {
		case err != nil:
			return 0, false, false, err
		case v == Keeps:
			high = n
		case n == most:
			return 0, v == Misses, false, nil
		default:
			low = n
		}
	}
	for high-low > 1 {
		mid := (low + high) / 2
		v, err := try(mid)
		switch {
		case err != nil:
			return 0, false, false, err
		case v == Keeps:
			high = mid
		default:
			low = mid
		}
	}
	if high < most {
		v, err := try(high + 1)
		if err != nil {
			return 0, false, false, err
		}
		odd = v != Keeps
	}
	return high, high == 1 || said[high-1] == Misses, odd, nil
}

// Best finds where a value is greatest among 1 to most, from a first guess, if it rises
// towards there and falls behind it. It looks at both neighbours of what it returns.
func Best(first, most int, value func(n int) (float64, error)) (at int, err error) {
	known := map[int]float64{}
	of := func(n int) float64 {
		if n < 1 || n > most || err != nil {
			return -1
		}
		v, ok := known[n]
		if !ok {
			v, err = value(n)
			known[n] = v
		}
		return v
	}
	at = min(max(first, 1), most)
	for step := max(1, most/4); step > 0; {
		switch here := of(at); {
		case of(at+step) > here:
			at += step
		case of(at-step) > here:
			at -= step
		default:
			step /= 2
		}
	}
	return at, err
}
