package machine

// Few is a map that mostly has few entries. A linear search through them is faster than hashing and needs no memory for
// a map. The zero value is an empty map.
type Few[K comparable, V any] struct {
	keys   []K
	values []V
	places map[K]int32 // entries by key; nil up to few entries
}

// few is the largest number of entries that are searched linearly.
const few = 16

// Len returns the number of entries.
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

func (f *Few[K, V]) Get(k K) (v V, ok bool) {
	if i := f.at(k); i >= 0 {
		return f.values[i], true
	}
	return v, false
}

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

// Delete removes a key, if it is there.
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

// All yields the entries, in an order that depends only on the calls so far. The reader may change entries, but may not
// add or remove any.
func (f *Few[K, V]) All(yield func(K, V) bool) {
	for i := range f.keys {
		if !yield(f.keys[i], f.values[i]) {
			return
		}
	}
}
