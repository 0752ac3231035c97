package machine

// Few is a map that mostly has few entries: these are looked through, which is
// faster than hashing and takes no memory of a map's own. The zero value is empty.
type Few[K comparable, V any] struct {
	keys   []K
	values []V
	places map[K]int32 // where there are more than few
}

// few is up to how many entries are looked through.
const few = 16

// Len is the number of entries.
func (f *Few[K, V]) Len() int { return len(f.keys) }

func (f *Few[K, V]) at(k K) int {
	if f.places != nil {
		if i, ok := f.places[k]; ok {
			return int(i)
		}
		return -1
	}
	for i := range f.keys {
		if f.keys[i] == k {
			return i
		}
	}
	return -1
}

// Get is the value of a key, and whether there is one.
func (f *Few[K, V]) Get(k K) (v V, ok bool) {
	if i := f.at(k); i >= 0 {
		return f.values[i], true
	}
	return v, false
}

// Set gives a key a value.
func (f *Few[K, V]) Set(k K, v V) {
	if i := f.at(k); i >= 0 {
		f.values[i] = v
		return
	}
	if f.places == nil && len(f.keys) == few {
		f.places = make(map[K]int32, 2*few)
		for i, k := range f.keys {
			f.places[k] = int32(i)
		}
	}
	if f.places != nil {
		f.places[k] = int32(len(f.keys))
	}
	f.keys, f.values = append(f.keys, k), append(f.values, v)
}

// Delete takes a key out, if it is there.
func (f *Few[K, V]) Delete(k K) {
	i := f.at(k)
	if i < 0 {
		return
	}
	last := len(f.keys) - 1
	if f.places != nil {
		f.places[f.keys[last]] = int32(i)
		delete(f.places, k)
	}
	f.keys[i], f.values[i] = f.keys[last], f.values[last]
	var none V
	f.values[last] = none
	f.keys, f.values = f.keys[:last], f.values[:last]
	if last == 0 {
		f.places = nil
	}
}

// All goes through the entries, in an order that follows from the calls so far.
// Entries may be changed meanwhile, but none added or taken out.
func (f *Few[K, V]) All(yield func(K, V) bool) {
	for i := range f.keys {
		if !yield(f.keys[i], f.values[i]) {
			return
		}
	}
}
