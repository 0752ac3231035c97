package chattemplate

import (
	"fmt"
	"io"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// ownTags replace the library's tags whose expressions are not accessible.
var ownTags = map[string]parser.ControlStructureParser{"set": setTag, "with": withTag, "filter": filterTag}

// chosen is the syntax VALUE, or VALUE if CONDITION else VALUE.
type chosen struct{ value, when, otherwise nodes.Expression }

func parseChosen(args *parser.Parser) (c chosen, err error) {
	if c.value, err = args.ParseExpression(); err != nil {
		return c, err
	}
	if c.when, c.otherwise, err = args.ParseCondition(); err == nil && c.when != nil && c.otherwise == nil {
		err = args.Error("expected VALUE if CONDITION else VALUE", args.Current())
	}
	return c, err
}

func (c *chosen) measure() {
	c.value, c.when, c.otherwise = measured(c.value), measured(c.when), measured(c.otherwise)
}

func (c *chosen) eval(r *exec.Renderer) (*exec.Value, error) {
	from := c.value
	if c.when != nil {
		when := r.Eval(c.when)
		if when.IsError() {
			return nil, when
		}
		if when.IsNil() || !when.IsTrue() {
			from = c.otherwise
		}
	}
	return counting(r, r.Eval(from))
}

// counting counts the bytes of a value that a variable keeps, and returns the value.
func counting(r *exec.Renderer, v *exec.Value) (*exec.Value, error) {
	if v.IsError() {
		return nil, v
	}
	return v, budgetOf(r.Environment.Context).produce(size(v))
}

// tag has the common parts of all tags: the position, and the enclosed nodes.
type tag struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func (t *tag) Position() *tokens.Token { return t.at }
func (t *tag) String() string          { return "tag" }

// text renders the nodes that the tag encloses.
func (t *tag) text(r *exec.Renderer) (*exec.Value, error) {
	w := &passage{budget: budgetOf(r.Environment.Context)}
	sub := r.Inherit()
	sub.Output = w
	if err := sub.ExecuteWrapper(t.body); err != nil {
		return nil, err
	}
	return exec.AsSafeValue(w.text.String()), nil
}

// set is the tag {% set NAME = VALUE %}, or {% set NAME %} … {% endset %}.
type set struct {
	tag
	target nodes.Expression
	to     chosen
}

func setTag(p, args *parser.Parser) (_ nodes.ControlStructure, err error) {
	s := &set{tag: tag{at: p.Current()}}
	if s.target, err = args.ParseVariableOrLiteral(); err != nil {
		return nil, err
	}
	if args.Match(tokens.Assign) == nil {
		if !args.End() {
			return nil, args.Error("expected = or the end of the tag", args.Current())
		}
		s.body, _, err = p.WrapUntil("endset")
		return s, err
	}
	if s.to, err = parseChosen(args); err == nil && !args.End() {
		err = args.Error("expected set NAME = VALUE, or VALUE if CONDITION else VALUE", args.Current())
	}
	return s, err
}

// Execute implements exec.ControlStructure.
func (s *set) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) (err error) {
	var value *exec.Value
	if s.body != nil {
		if value, err = s.text(r); err == nil {
			value, err = counting(r, value)
		}
	} else {
		value, err = s.to.eval(r)
	}
	if err != nil {
		return err
	}
	var of, key *exec.Value
	switch n := s.target.(type) {
	case *nodes.Name:
		r.Environment.Context.Set(n.Name.Val, value.Interface())
		return nil
	case *nodes.GetAttribute:
		of, key = r.Eval(n.Node), exec.AsValue(n.Attribute)
	case *nodes.GetItem:
		of, key = r.Eval(n.Node), r.Eval(n.Arg)
	default:
		return fmt.Errorf("nothing can be set to %s", n)
	}
	if of.IsError() {
		return of
	}
	if key.IsError() {
		return key
	}
	return of.Set(key, value.Interface())
}

// with is the tag {% with NAME = VALUE, … %} … {% endwith %}. As in Jinja, a value does not see the names beside it.
type with struct {
	tag
	names  []string
	values []chosen
}

func withTag(p, args *parser.Parser) (_ nodes.ControlStructure, err error) {
	w := &with{tag: tag{at: p.Current()}}
	if w.body, _, err = p.WrapUntil("endwith"); err != nil {
		return nil, err
	}
	for !args.End() {
		name := args.Match(tokens.Name)
		if name == nil || args.Match(tokens.Assign) == nil {
			return nil, args.Error("expected with NAME = VALUE, ...", args.Current())
		}
		value, err := parseChosen(args)
		if err != nil {
			return nil, err
		}
		w.names, w.values = append(w.names, name.Val), append(w.values, value)
		if args.Match(tokens.Comma) == nil && !args.End() {
			return nil, args.Error("expected a comma or the end of the tag", args.Current())
		}
	}
	return w, nil
}

// Execute implements exec.ControlStructure.
func (w *with) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	sub := r.Inherit()
	for i, name := range w.names {
		value, err := w.values[i].eval(r)
		if err != nil {
			return err
		}
		sub.Environment.Context.Set(name, value.Interface())
	}
	return sub.ExecuteWrapper(w.body)
}

// filter is the tag {% filter NAME | … %} … {% endfilter %}.
type filter struct {
	tag
	chain []*nodes.FilterCall
}

func filterTag(p, args *parser.Parser) (_ nodes.ControlStructure, err error) {
	f := &filter{tag: tag{at: p.Current()}}
	if f.body, _, err = p.WrapUntil("endfilter"); err != nil {
		return nil, err
	}
	for next := true; next; next = args.Match(tokens.Pipe) != nil {
		call, err := args.ParseFilter()
		if err != nil {
			return nil, err
		}
		f.chain = append(f.chain, call)
	}
	if !args.End() {
		return nil, args.Error("expected | and a filter, or the end of the tag", args.Current())
	}
	return f, nil
}

// Execute implements exec.ControlStructure.
func (f *filter) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	value, err := f.text(r)
	for _, call := range f.chain {
		if err != nil {
			return err
		}
		value, err = counting(r, r.Evaluator().ExecuteFilter(call, value))
	}
	if err == nil {
		_, err = io.WriteString(r.Output, value.String())
	}
	return err
}

// passage collects the text that a tag encloses.
type passage struct {
	*budget
	text strings.Builder
}

func (w *passage) Write(p []byte) (int, error) {
	n := len(p)
	if w.text.Len()+n > maxValue {
		n = maxValue + 1
	}
	if err := w.produce(n); err != nil {
		return 0, err
	}
	return w.text.Write(p)
}
