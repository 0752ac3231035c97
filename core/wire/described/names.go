package described

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Namer computes a name for a unit of a text together with everything before it.
type Namer interface {
	Name(before uint64, unit []byte) uint64
}

// Rule says how the beginnings of prompts are named. Rules are compared, so a Namer must be comparable.
type Rule struct {
	Namer Namer
	// Seed begins the chain of names. Unit is the size of a unit in bytes.
	Seed uint64
	Unit int
	// Template turns a chat into text. Answer is as in PromptLen.
	Template tokens.Template
	Answer   bool
	// Own says that names are compared only with those of other described prompts. The names of a text of Units then
	// derive from its heads and not from its bytes.
	Own bool
}

// known caches the names under a rule: those of the whole units so far, and the bytes after the last one.
type known struct {
	rule  Rule
	count int // the number of messages
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

// add names the new units in text. The text begins with k.rest.
func (k *known) add(text []byte) {
	k.names, text = k.rule.names(k.names, text)
	k.rest = append(k.rest[:0], text...)
}

// names appends the names of the whole units of a text that follows the units named in dst. It returns the bytes after
// the last unit.
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

// Names appends the names of the whole units of a prompt's text to dst, which is empty. It also returns the bytes after
// the last unit, which stay valid until the next call. Names computes each part that requests have in common once.
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
		if k.count > n { // the conversation has outgrown this request
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

// ownLetters is the number of a request's own letters that make it unique: another request draws the same with a
// probability of 1 in 10^27.
const ownLetters = 16

// SharedNames returns the part of Names that another prompt may have, too: the names of the units up to the first
// unique one. It returns false where it cannot determine them.
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
	if at := len(buf); at+ownLetters > r.Unit { // otherwise no unit ends within them
		buf = m.Text.append(buf, trimmed+ownLetters)
		buf = buf[:at+copy(buf[at:], buf[at+trimmed:])]
		dst, _ = r.names(dst, buf[:(at+ownLetters-1)/r.Unit*r.Unit])
	}
	b.spelt.b = buf
	return dst, true
}

// unitNames is Names for a text of Units, or with sharedOnly for the part that other prompts share. The name of a unit
// of the prompt's text derives from the head of the text's unit in which it ends, which stands for everything before.
// Where it has fewer than ownLetters letters of that unit, its name derives from these letters and the head before.
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

// mix chains two names, by the finaliser of splitmix64 over their mixture.
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 ^ b
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// divides reports whether a message's shared beginning gives the same text under a template, whatever follows.
func (m *Message) divides(t *tokens.Template) bool {
	return m.Role == roleOfShared && (!t.Trim || !m.Shared.all && m.right < m.Text.size)
}

// roleOfShared is the role of messages whose beginnings are cached.
const roleOfShared = "user"

// name returns the names of a prompt that begins with the shared beginning, up to the end of that beginning.
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

// name extends k to the first n messages of the conversation.
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
