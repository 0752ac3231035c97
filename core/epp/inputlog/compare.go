package inputlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Difference is the first place at which the same inputs had another effect.
type Difference struct {
	At      machine.Time `json:"at"`
	Request string       `json:"request,omitempty"` // its x-request-id
	Serial  uint64       `json:"serial,omitempty"`  // its number in the log
	// Field is the first one that differs: "decided.profiles.default.picked". Recorded and Now are its values, "" for a
	// missing field.
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
	// Plugin is the plug-in that answered differently, "" if that is unknown.
	Plugin string `json:"plugin,omitempty"`
}

func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s", d.At)
	if d.Serial > 0 {
		fmt.Fprintf(&b, ", request %s", cmp.Or(d.Request, fmt.Sprintf("number %d", d.Serial)))
	}
	fmt.Fprintf(&b, ": %s: recorded %s, now %s", d.Field, cmp.Or(d.Recorded, "nothing"), cmp.Or(d.Now, "nothing"))
	if d.Plugin != "" {
		fmt.Fprintf(&b, " (plugin %s answers differently)", d.Plugin)
	}
	return b.String()
}

// effect compares a recorded effect with the next one of the played machine.
func (p *Player) effect(text []byte) error {
	var x struct {
		Effect effect `json:"effect"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return fmt.Errorf("not a line of a log of inputs: %w", err)
	}
	k, err := p.playing(x.Effect.Picker, x.Effect.At)
	if k == nil {
		return err
	}
	if len(k.got) == 0 { // it was due without an input
		k.strayed = false
		k.m.Advance(x.Effect.At, &k.fx)
		if err := p.effects(x.Effect.Picker, k); err != nil {
			return err
		}
	}
	p.Effects++
	if x.Effect.Decided != nil {
		p.Decisions++
	}
	var now []byte
	if len(k.got) > 0 {
		now, k.got = k.got[0], k.got[1:]
	}
	if !k.strayed && !bytes.Equal(now, text) {
		p.differs(k, text, now)
	}
	return nil
}

// leftOver reports effects of the last input that the log lacks.
func (p *Player) leftOver(k *played) {
	if len(k.got) > 0 && !k.strayed {
		p.differs(k, nil, k.got[0])
	}
	k.got = nil
}

// differs notes a difference. The Player then ignores the other effects of the same input.
func (p *Player) differs(k *played, recorded, now []byte) {
	d := differ(recorded, now)
	if d == nil { // the same in another form: control characters are escaped
		return
	}
	k.strayed, k.got = true, nil
	p.Different++
	if p.First != nil {
		return
	}
	var of struct {
		Effect effect `json:"effect"`
	}
	if recorded != nil {
		now = recorded
	}
	_ = json.Unmarshal(now, &of) // it was read before, or Log wrote it
	d.At, d.Serial = of.Effect.At, of.Effect.Request
	d.Field = strings.TrimPrefix(d.Field, "effect.")
	if r := k.requests[d.Serial]; r != nil && r.Request != nil {
		d.Request = r.ID
	}
	parts := strings.Split(d.Field, ".")
	for _, what := range []string{"scores", "removed", "screened"} {
		if i := slices.Index(parts, what); i >= 0 && i+1 < len(parts) {
			d.Plugin = strings.Join(parts[i+1:], ".")
		}
	}
	p.First = d
}

// differ finds the first place at which two JSON values differ, nil if there is none: causes before their consequences.
func differ(recorded, now []byte) *Difference {
	var a, b any
	if len(recorded) > 0 && json.Unmarshal(recorded, &a) != nil || len(now) > 0 && json.Unmarshal(now, &b) != nil {
		return nil
	}
	return differAt("", a, b)
}

func differAt(path string, a, b any) *Difference {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if isX && isY {
		names := slices.Sorted(maps.Keys(x))
		for name := range y {
			if _, both := x[name]; !both {
				names = append(names, name)
			}
		}
		slices.SortStableFunc(names, func(p, q string) int { return cmp.Compare(rank(p), rank(q)) })
		for _, name := range names {
			inner := name
			if path != "" {
				inner = path + "." + name
			}
			if d := differAt(inner, x[name], y[name]); d != nil {
				return d
			}
		}
		return nil
	}
	k, isK := a.([]any)
	l, isL := b.([]any)
	if isK && isL {
		for i := range max(len(k), len(l)) {
			var x, y any // where one is shorter, nothing
			if i < len(k) {
				x = k[i]
			}
			if i < len(l) {
				y = l[i]
			}
			if d := differAt(path+"."+strconv.Itoa(i), x, y); d != nil {
				return d
			}
		}
		return nil
	}
	p, q := show(a), show(b)
	if p == q {
		return nil
	}
	return &Difference{Field: path, Recorded: p, Now: q}
}

// causes are fields that determine later ones, in their order.
var causes = []string{"screened", "profiles", "removed", "left", "of", "scores", "picked", "total"}

func rank(field string) int {
	if i := slices.Index(causes, field); i >= 0 {
		return i
	}
	return len(causes)
}

func show(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
