package structured

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// together returns a schema merged with the schemas that its $ref or allOf names.
func (c *compiler) together(v *value, key string) *value {
	parts := []*value{v.get(key)}
	if key == "allOf" {
		if !parts[0].is('[') {
			panic(refusal("allOf must be an array"))
		}
		parts = parts[0].vals
	} else {
		to := c.resolve(parts[0])
		parts = []*value{to}
	}
	whole := v.without(slices.Concat([]string{key}, annotations)...)
	if len(whole.keys) == 0 && len(parts) == 1 {
		return parts[0]
	}
	for _, p := range parts {
		whole = c.merge(whole, p)
	}
	return whole
}

// resolve returns the target of a $ref.
func (c *compiler) resolve(ref *value) *value {
	if !ref.is('"') {
		panic(refusal("$ref must be a string"))
	}
	if ref.text != "#" && !strings.HasPrefix(ref.text, "#/") {
		panic(refusal("URI should either be '#' or start with '#/' but got %s", ref.text))
	}
	at := c.document
	for part := range strings.SplitSeq(strings.TrimPrefix(ref.text[1:], "/"), "/") {
		if ref.text == "#" {
			break
		}
		if p, err := url.PathUnescape(part); err == nil {
			part = p
		}
		if strings.Contains(part, "~") {
			part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		}
		next := at.get(part)
		if i, err := strconv.Atoi(part); err == nil && at.is('[') && i >= 0 && i < len(at.vals) {
			next = at.vals[i]
		}
		if next == nil {
			panic(refusal("Cannot find field %s in %s", part, ref.text))
		}
		at = next
	}
	return at
}

// merge returns a schema for values that match both. If both have a keyword, merge takes the narrower bounds, joins
// members, and otherwise keeps the second value.
func (c *compiler) merge(a, b *value) *value {
	pair := [2]*value{a, b}
	if m := c.merged[pair]; m != nil {
		return m
	}
	c.spend(nodeWork)
	if a.is('{') && len(a.keys) == 0 || a.is('t') {
		return b
	}
	if b.is('t') {
		return a
	}
	if !a.is('{') || !b.is('{') {
		return &value{kind: 'f', spend: c.spend}
	}
	m := a.without()
	c.merged[pair] = m
	for i, key := range b.keys {
		theirs := b.vals[i]
		ours := m.get(key)
		if ours == nil {
			m.set(key, theirs)
			continue
		}
		switch key {
		case "properties":
			joined := ours.without()
			for k, name := range theirs.keys {
				both := theirs.vals[k]
				if had := joined.get(name); had != nil {
					both = c.merge(had, both)
				}
				joined.set(name, both)
			}
			m.set(key, joined)
		case "required", "allOf":
			if ours.is('[') && theirs.is('[') {
				c.spend(copyWork * (len(ours.vals) + len(theirs.vals)))
				m.set(key, &value{kind: '[', vals: slices.Concat(ours.vals, theirs.vals), spend: c.spend})
			}
		case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
			m.set(key, narrower(ours, theirs, 1))
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
			m.set(key, narrower(ours, theirs, -1))
		case "anyOf", "oneOf", "$ref": // values must match both
			all := &value{kind: '[', vals: []*value{c.with(key, theirs)}, spend: c.spend}
			if had := m.get("allOf"); had.is('[') {
				c.spend(copyWork * len(had.vals))
				all.vals = append(all.vals, had.vals...)
			}
			m.set("allOf", all)
		case "additionalProperties":
			if !ours.is('f') {
				m.set(key, theirs)
			}
		case "type":
			if t := common(ours, theirs); t != nil {
				m.set(key, t)
			} else {
				return &value{kind: 'f', spend: c.spend}
			}
		default:
			m.set(key, theirs)
		}
	}
	return m
}

// common returns the types that both keywords allow; nil is none.
func common(a, b *value) *value {
	list := func(v *value) []*value {
		if v.is('[') {
			return v.vals
		}
		return []*value{v}
	}
	out := &value{kind: '[', spend: a.spend}
	for _, x := range list(a) {
		a.spend(2 * copyWork * len(list(b)))
		for _, y := range list(b) {
			switch {
			case x.text == y.text, x.text == "number" && y.text == "integer":
				out.vals = append(out.vals, y)
			case x.text == "integer" && y.text == "number":
				out.vals = append(out.vals, x)
			}
		}
	}
	switch len(out.vals) {
	case 0:
		return nil
	case 1:
		return out.vals[0]
	}
	return out
}

func narrower(a, b *value, sign float64) *value {
	x, errX := strconv.ParseFloat(a.lit, 64)
	y, errY := strconv.ParseFloat(b.lit, 64)
	if errX == nil && errY == nil && sign*x > sign*y {
		return a
	}
	return b
}
