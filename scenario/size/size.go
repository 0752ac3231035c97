// Package size reads sizes in scenario files: counts of bytes, such as 64KiB, and ranges of them. 1 KiB is 1,024 bytes,
// 1 kB is 1,000.
package size

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a count of bytes, written plainly or with KiB, MiB, GiB, kB, MB, GB.
type Bytes int64

// Range is a count of bytes between two ends, both included: 1KiB or 1B..4MiB. The zero value is no range.
type Range struct{ Low, High Bytes }

// IsZero reports whether no range was given.
func (r Range) IsZero() bool { return r == Range{} }

const (
	bytesHelp = "a size such as 512, 64KiB or 4MiB"
	rangeHelp = "a size such as 512 or 4MiB, or a range such as 1..4MiB"
)

// Longer suffixes come first, since most end in B.
var units = []struct {
	suffix string
	size   float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// Parse reads a count of bytes.
func Parse(text string) (Bytes, error) {
	text = strings.TrimSpace(text)
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(f >= 0) || f*unit.size > 1<<50 || math.Trunc(f*unit.size) != f*unit.size {
			break
		}
		return Bytes(f * unit.size), nil
	}
	return 0, fmt.Errorf("%q is not %s", text, bytesHelp)
}

// UnmarshalText reads what Parse reads.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = Parse(string(text))
	return err
}

// Expected describes a valid size, for errors.
func (Bytes) Expected() string { return bytesHelp }

// Range returns the size as both ends of a range.
func (b Bytes) Range() (low, high float64) { return float64(b), float64(b) }

// String writes the size so that Parse reads it back.
func (b Bytes) String() string {
	for _, unit := range []struct {
		suffix string
		size   Bytes
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= unit.size && b%unit.size == 0 {
			return fmt.Sprintf("%d%s", b/unit.size, unit.suffix)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseRange reads one size, or two with .. between.
func ParseRange(text string) (Range, error) {
	low, high, ranged := strings.Cut(text, "..")
	if !ranged {
		high = low
	}
	var r Range
	var err1, err2 error
	r.Low, err1 = Parse(low)
	r.High, err2 = Parse(high)
	if err1 != nil || err2 != nil {
		return Range{}, fmt.Errorf("%q is not %s", text, rangeHelp)
	}
	if r.Low > r.High {
		return Range{}, fmt.Errorf("%q has its low end above its high end", text)
	}
	return r, nil
}

// UnmarshalText reads what ParseRange reads.
func (r *Range) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRange(string(text))
	return err
}

// Expected describes a valid range, for errors.
func (Range) Expected() string { return rangeHelp }

// Range returns the range's ends.
func (r Range) Range() (low, high float64) { return float64(r.Low), float64(r.High) }

// String writes the range so that ParseRange reads it back.
func (r Range) String() string {
	if r.Low == r.High {
		return r.Low.String()
	}
	return r.Low.String() + ".." + r.High.String()
}
