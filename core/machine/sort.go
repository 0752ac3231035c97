package machine

import "sort"

// SortFunc sorts as [slices.SortFunc] does, to the same order. The compiler writes the whole algorithm again for each
// struct type that slices.SortFunc sorts, some 10 kB of binary, and for none that SortFunc sorts: it is for lists that
// no hot loop sorts.
func SortFunc[E any](s []E, compare func(a, b E) int) {
	sort.Slice(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// SortStableFunc sorts as [slices.SortStableFunc] does, and saves what [SortFunc] saves.
func SortStableFunc[E any](s []E, compare func(a, b E) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
