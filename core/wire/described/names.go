package described

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Namer names a unit of a text together with all that is before it.
type Namer interface {
	Name(before uint64, unit []byte) uint64
}

// Rule is how the beginnings of prompts are named. Rules are compared, so a Namer
// is a value that can be.
type Rule struct {
	Namer Namer
	// Seed is what the first unit is named with, and Unit how many bytes one has.
	Seed uint64
	Unit int
	// Template is what a chat is spelt with; Answer as in PromptLen.
	Template tokens.Template
	Answer   bool
	// Own says that names are compared with those of other described prompts and with
	// nothing else: of a text of Units they are made of what its units stand for, and
	// not of its bytes.
	Own bool
}

// known is what is remembered under a rule: the names of the whole units up to
// some place, and the bytes behind the last one.
type known struct {
	rule  Rule
	count int // messages
	names []uint64
	rest  []byte
}

type memory []*known

func (m *memory) of(r *Rule) *known {
	for _, k := range *m {
		if k.rule == *r {
			return k
		}
	}
	k := &known{rule: *r}
	*m = append(*m, k)
	return k
}

// add names what is new in text, whose beginning is k.rest.
func (k *known) add(text []byte) {
	k.names, text = k.rule.names(k.names, text)
	k.rest = append(k.rest[:0], text...)
}

// names appends the names of the whole units of a text that follows those which
// dst has; what is behind them is left.
func (r *Rule) names(dst []uint64, text []byte) ([]uint64, []byte) {
	last := r.Seed
	if n := len(dst); n > 0 {
		last = dst[n-1]
	}
	for ; len(text) >= r.Unit; text = text[r.Unit:] {
		last = r.Namer.Name(last, text[:r.Unit])
		dst = append(dst, last)
	}
	return dst, text
}

// Names appends the names of the whole units of a prompt's text to dst, which is
// empty, and tells the bytes that are left behind the last one. They are good until
// the next call. What requests have in common is named once.
func (b *Body) Names(dst []uint64, r *Rule) (names []uint64, rest []byte) {
	if r.Own && b.last.Text.units != nil && b.history == nil {
		return b.unitNames(dst, r, false)
	}
	buf := b.spelt.b[:0]
	if !b.Chat {
		buf = b.last.append(buf, b.last.Len())
		b.spelt.b = buf
		return r.names(dst, buf)
	}
	t, from := &r.Template, nothing
	if n := b.sums.messages - 1; n > 0 {
		k := b.history.known.of(r)
		if k.count > n { // the conversation is further than this request
			k = &known{rule: *r}
		}
		b.history.name(k, n, b.spelt)
		dst, buf = append(dst, k.names...), append(b.spelt.b[:0], k.rest...)
	} else if s := b.last.Shared; s != nil && b.last.divides(t) {
		k := s.name(r, b.last.Role, b.spelt)
		dst, buf, from = append(dst, k.names...), append(b.spelt.b[:0], k.rest...), shared
	} else {
		buf = append(buf, t.Begin...)
	}
	buf = b.last.spell(buf, t, from)
	if r.Answer {
		buf = appendOpening(buf, t)
	}
	b.spelt.b = buf
	return r.names(dst, buf)
}

// ownLetters are so many of a request's own that nobody else draws the same: a
// chance of 1 in 10^27.
const ownLetters = 16

// SharedNames is Names as far as another prompt may have the same: the names of the
// units up to the first that is like no other. It is false where that cannot be
// told.
func (b *Body) SharedNames(dst []uint64, r *Rule) (names []uint64, ok bool) {
	m, t := &b.last, &r.Template
	if u := m.Text.units; b.Once && r.Own && u != nil && b.history == nil && m.Text.size-u.Shared*u.Size >= m.left+
		m.right+2*ownLetters {
		names, _ = b.unitNames(dst, r, true)
		return names, true
	}
	if !b.Once || b.history != nil || !m.Text.drawn() || m.Text.size < m.left+m.right+2*ownLetters || m.Shared != nil &&
		(!b.Chat || !m.divides(t)) {
		return dst, false
	}
	buf, trimmed := b.spelt.b[:0], 0
	switch {
	case m.Shared != nil:
		k := m.Shared.name(r, m.Role, b.spelt)
		dst, buf = append(dst, k.names...), append(b.spelt.b[:0], k.rest...)
	case b.Chat:
		buf = append(append(append(append(buf, t.Begin...), t.Before...), m.Role...), t.After...)
		if t.Trim {
			trimmed = m.left
		}
	}
	if at := len(buf); at+ownLetters > r.Unit { // a unit ends before there are enough of them
		buf = m.Text.append(buf, trimmed+ownLetters)
		buf = buf[:at+copy(buf[at:], buf[at+trimmed:])]
		dst, _ = r.names(dst, buf[:(at+ownLetters-1)/r.Unit*r.Unit])
	}
	b.spelt.b = buf
	return dst, true
}

// unitNames is Names for a text of Units, or as far as others share it. A unit of the
// prompt's text is named by the unit of letters that it ends in, which stands for all before
// them; where it has hardly any of its letters, by these and by the one before.
func (b *Body) unitNames(dst []uint64, r *Rule, sharedOnly bool) (names []uint64, rest []byte) {
	m, t, u := &b.last, &r.Template, b.last.Text.units
	buf, skip, size := b.spelt.b[:0], 0, m.Text.size
	if b.Chat {
		buf = append(append(append(append(buf, t.Begin...), t.Before...), m.Role...), t.After...)
		if t.Trim {
			skip, size = m.left, size-m.left-m.right
		}
	}
	before, limit := len(buf), size
	if sharedOnly {
		limit = max(0, min(size, u.Shared*u.Size+ownLetters-1-skip))
	}
	dst = slices.Grow(dst, (before+limit)/r.Unit+1)
	base := r.Namer.Name(r.Seed+uint64(before), buf)
	few := min(ownLetters-1, limit)
	buf = m.Text.part(buf, skip, skip+few)
	dst, _ = r.names(dst, buf[:(before+few)/r.Unit*r.Unit])
	at := len(dst) * r.Unit
	for i, head := range u.Heads {
		start, end := before-skip+i*u.Size, before-skip+u.end(i, m.Text.n)
		end = min(end, before+limit)
		for ; at+r.Unit <= end; at += r.Unit {
			if n := at + r.Unit - start; n >= ownLetters || i == 0 {
				dst = append(dst, mix(base^head, uint64(at)))
			} else {
				letters := m.Text.part(buf[:before], i*u.Size, i*u.Size+n)
				dst = append(dst, mix(mix(base^u.Heads[i-1], uint64(at)), xxhash.Sum64(letters[before:])))
			}
		}
	}
	if sharedOnly {
		b.spelt.b = buf
		return dst, nil
	}
	if at < before {
		buf = buf[:copy(buf, buf[at:before])]
	} else {
		buf, skip, size = buf[:0], skip+at-before, size-(at-before)
	}
	buf = m.Text.part(buf, skip, skip+size)
	if b.Chat {
		buf = append(buf, t.End...)
		if r.Answer {
			buf = appendOpening(buf, t)
		}
	}
	b.spelt.b = buf
	return r.names(dst, buf)
}

// mix chains two names (the finaliser of splitmix64 over their mixture).
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 ^ b
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// divides reports whether what a message shares is the same text under a template,
// whatever follows.
func (m *Message) divides(t *tokens.Template) bool {
	return m.Role == roleOfShared && (!t.Trim || !m.Shared.all && m.right < m.Text.size)
}

// roleOfShared is that of messages whose beginnings are remembered.
const roleOfShared = "user"

// name brings what is known of a prompt that begins with a shared beginning up to
// its end.
func (s *Shared) name(r *Rule, role string, spelt *scratch) *known {
	k := s.known.of(r)
	if k.count > 0 {
		return k
	}
	t := &r.Template
	buf := append(spelt.b[:0], t.Begin...)
	buf = append(append(append(buf, t.Before...), role...), t.After...)
	at := len(buf)
	buf = s.text.Append(buf)
	if t.Trim {
		buf = buf[:at+copy(buf[at:], buf[at+s.left:])]
	}
	spelt.b = buf
	k.add(buf)
	k.count = 1
	return k
}

// name brings what is known of the conversation up to its first n messages.
func (h *History) name(k *known, n int, spelt *scratch) {
	if k.count == n {
		return
	}
	t, from := &k.rule.Template, nothing
	buf := append(spelt.b[:0], k.rest...)
	if first := &h.messages[0]; k.count == 0 && first.Shared != nil && first.divides(t) {
		s := first.Shared.name(&k.rule, first.Role, spelt)
		k.names, buf, from = append(k.names, s.names...), append(spelt.b[:0], s.rest...), shared
	} else if k.count == 0 {
		buf = append(buf, t.Begin...)
	}
	for ; k.count < n; k.count++ {
		buf = h.messages[k.count].spell(buf, t, from)
		from = nothing
	}
	k.add(buf)
	spelt.b = buf
}
