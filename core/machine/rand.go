package machine

// Randomness in windtunnel is keyed and not one stream. Every draw names the run's seed, the component, a purpose and
// an index. One more draw somewhere changes no other draw, and live and virtual runs that draw in a different order
// still draw the same values.

// Draw is a keyed source of random values. Copies draw the same values; only the methods advance its state.
type Draw struct{ state uint64 }

// NewDraw keys a draw by the run's seed, a component ("server"), a purpose
// ("prefill") and an index (a request's number).
func NewDraw(seed uint64, component, purpose string, index uint64) Draw {
	h := mix(seed ^ 0x9e3779b97f4a7c15)
	h = mix(h ^ hashString(component))
	h = mix(h ^ hashString(purpose))
	h = mix(h ^ index)
	return Draw{h}
}

// DrawFor keys a draw by an identifier (a request id) instead of a number.
func DrawFor(seed uint64, component, purpose, id string) Draw {
	return NewDraw(seed, component, purpose, hashString(id))
}

// Uint64 returns the next value, uniform over all 64-bit integers (splitmix64).
func (d *Draw) Uint64() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mix(d.state)
}

// Skip skips n values.
func (d *Draw) Skip(n uint64) { d.state += n * 0x9e3779b97f4a7c15 }

// Float64 returns the next value, uniform in [0, 1).
func (d *Draw) Float64() float64 { return float64(d.Uint64()>>11) / (1 << 53) }

// Intn returns the next value, uniform in [0, n). n below 1 gives 0.
func (d *Draw) Intn(n int) int {
	if n < 1 {
		return 0
	}
	return int(d.Uint64() % uint64(n)) // bias below 2^-32 for every n used here
}

// Between returns the next value, uniform in [low, high]; low if high is below it.
func (d *Draw) Between(low, high Time) Time {
	if high <= low {
		return low
	}
	return low + Time(d.Uint64()%uint64(high-low+1))
}

const letters = "abcdefghijklmnopqrstuvwxyz0123456789"

// Letters returns a string of n characters from a-z and 0-9.
func (d *Draw) Letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[d.Intn(len(letters))]
	}
	return string(b)
}

// UUID returns a random (version 4) UUID in its usual form.
func (d *Draw) UUID() string {
	a, b := d.Uint64()&^0xf000|0x4000, d.Uint64()&^(3<<62)|2<<62
	const digits = "0123456789abcdef"
	out := []byte("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
	for i := range out {
		if out[i] == '-' {
			continue
		}
		out[i] = digits[a>>60]
		a, b = a<<4|b>>60, b<<4
	}
	return string(out)
}

func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// hashString is FNV-1a, 64 bits.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
