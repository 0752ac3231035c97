package search

import (
	"fmt"
	"testing"
)

func TestDbg(t *testing.T) {
	for seed := range 8 {
		played := 0
		o := Objective{Quantile: 0, Bound: truth(1, .8, 0)}
		r := queueRule(1, o, uint64(seed), &played)
		r.Looked = func(l Load, k Look) {
			fmt.Printf("  %.4f n=%d L=%d v=%.3f [%.3f %.3f]/%.3f keeps %.2f spread %.2f growth %.2f [%.2f %.2f] %d %v\n", k.Rate/.8, k.Runs, k.Requests, k.Estimates[0].Value, k.Estimates[0].Low, k.Estimates[0].High, o.Bound, k.keeps, k.spread, k.Growth.Value, k.Growth.Low, k.Growth.High, k.Verdict, k.Fails)
		}
		rough, _ := r.Rough(1, .6)
		b, _ := r.Highest(1, rough)
		fmt.Println(seed, b.Keeps/.8, b.Misses/.8)
	}
}
