package chattemplate

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlstructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// maxValue limits one value that a template makes on its way to a prompt, in approximate bytes.
const maxValue = MaxPromptBytes

// maxValues limits the total of all values that a template makes, in approximate bytes. Only a test changes it.
var maxValues = 1 << 30

// produce counts n bytes before they are made.
func (b *budget) produce(n int) error {
	if b.err == nil {
		if b.made += min(n, maxValues); n > maxValue {
			b.err = fmt.Errorf("the chat template makes a value of more than %d bytes", maxValue)
		} else if b.made > maxValues {
			b.err = fmt.Errorf("the chat template makes values of more than %d bytes in all", maxValues)
		}
	}
	return b.look(min(n, maxValues))
}

// size returns the approximate length of a value as text, in bytes. It stops counting just above maxValue.
func size(values ...*exec.Value) int {
	left := maxValue
	for _, v := range values {
		if v != nil {
			measure(v.Val, &left, 0)
		}
	}
	return maxValue - left
}

func measure(v reflect.Value, left *int, depth int) {
	if *left -= 8; *left < 0 || depth > 1000 {
		*left = min(*left, -1)
		return
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		if x, ok := v.Interface().(*exec.Value); ok {
			measure(x.Val, left, depth+1)
			return
		}
		measure(v.Elem(), left, depth+1)
	case reflect.String:
		*left -= v.Len()
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && *left >= 0; i++ {
			measure(v.Index(i), left, depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); *left >= 0 && it.Next(); {
			measure(it.Key(), left, depth+1)
			measure(it.Value(), left, depth+1)
		}
	case reflect.Struct:
		if d, ok := v.Interface().(exec.Dict); ok {
			for i := 0; i < len(d.Pairs) && *left >= 0; i++ {
				measure(d.Pairs[i].Key.Val, left, depth+1)
				measure(d.Pairs[i].Value.Val, left, depth+1)
			}
		}
	}
}

// Names of functions. No template can write these names.
const (
	sumName, productName, concatName = " +", " *", " ~"
	madeName                         = " made"
)

func call(name string, at *tokens.Token, args ...nodes.Expression) nodes.Expression {
	of := &tokens.Token{Type: tokens.Name, Val: name, Line: at.Line, Col: at.Col}
	return &nodes.Call{Location: at, Func: &nodes.Name{Name: of}, Args: args}
}

// measured returns an expression that counts what it makes. It wraps calls, and the operators that make longer values.
func measured(e nodes.Node) nodes.Expression {
	switch n := e.(type) {
	case nil:
		return nil
	case *nodes.BinaryExpression:
		n.Left, n.Right = measured(n.Left), measured(n.Right)
		switch n.Operator.Token.Type {
		case tokens.Addition:
			return call(sumName, n.Operator.Token, n.Left, n.Right)
		case tokens.Multiply:
			return call(productName, n.Operator.Token, n.Left, n.Right)
		case tokens.Tilde:
			return call(concatName, n.Operator.Token, n.Left, n.Right)
		}
	case *nodes.UnaryExpression:
		n.Term = measured(n.Term)
	case *nodes.Negation:
		n.Term = measured(n.Term)
	case *nodes.List:
		measureArguments(n.Val, nil)
	case *nodes.Tuple:
		measureArguments(n.Val, nil)
	case *nodes.Dict:
		for _, p := range n.Pairs {
			p.Key, p.Value = measured(p.Key), measured(p.Value)
		}
	case *nodes.Call:
		n.Func = measured(n.Func)
		n.Parent = measured(n.Parent)
		measureArguments(n.Args, n.Kwargs)
		return call(madeName, n.Location, n)
	case *nodes.GetItem:
		n.Node, n.Arg = measured(n.Node), measured(n.Arg)
	case *nodes.GetSlice:
		n.Node, n.Start, n.End, n.Step = measured(n.Node), measured(n.Start), measured(n.End), measured(n.Step)
	case *nodes.GetAttribute:
		n.Node = measured(n.Node)
	case *nodes.FilteredExpression:
		n.Expression = measured(n.Expression)
		for _, f := range n.Filters {
			measureArguments(f.Args, f.Kwargs)
		}
	case *nodes.TestExpression:
		n.Expression = measured(n.Expression)
		measureArguments(n.Test.Args, n.Test.Kwargs)
	}
	return e
}

func measureArguments(list []nodes.Expression, named map[string]nodes.Expression) {
	for i := range list {
		list[i] = measured(list[i])
	}
	for k, v := range named {
		named[k] = measured(v)
	}
}

// measureNodes makes all expressions of a template, or of a part of one, count.
func measureNodes(list []nodes.Node) {
	for _, n := range list {
		switch n := n.(type) {
		case *nodes.Output:
			n.Condition, n.Alternative = measured(n.Condition), measured(n.Alternative)
			n.Expression = call(madeName, n.Start, measured(n.Expression))
			if n.Alternative != nil {
				n.Alternative = call(madeName, n.Start, n.Alternative)
			}
		case *nodes.ControlStructureBlock:
			measureTag(n.ControlStructure)
		}
	}
}

func measureWrapper(w *nodes.Wrapper) {
	if w != nil {
		measureNodes(w.Nodes)
	}
}

func measureTag(tag nodes.ControlStructure) {
	if c, ok := tag.(*counted); ok {
		tag = c.ControlStructure
	}
	switch t := tag.(type) {
	case *set:
		t.to.measure()
		measureWrapper(t.body)
	case *with:
		for i := range t.values {
			t.values[i].measure()
		}
		measureWrapper(t.body)
	case *filter:
		for _, f := range t.chain {
			measureArguments(f.Args, f.Kwargs)
		}
		measureWrapper(t.body)
	case *enclosed:
		measureWrapper(t.Wrapper)
	case *controlstructures.IfControlStructure:
		for i := range t.Conditions {
			t.Conditions[i] = measured(t.Conditions[i])
		}
		for _, w := range t.Wrappers {
			measureWrapper(w)
		}
	case *controlstructures.ForControlStructure:
		t.ObjectEvaluator, t.IfCondition = measured(t.ObjectEvaluator), measured(t.IfCondition)
		measureWrapper(t.BodyWrapper)
		measureWrapper(t.EmptyWrapper)
	case *controlstructures.MacroControlStructure:
		for _, p := range t.Kwargs {
			p.Value = measured(p.Value)
		}
		measureWrapper(t.Wrapper)
	case *controlstructures.DoControlStructure:
		t.Expression = measured(t.Expression)
	case *controlstructures.CallControlStructure:
		measureArguments(t.Call.Args, t.Call.Kwargs)
		measureWrapper(t.Body)
	}
}

// operator returns a function of two values that makes about cost bytes.
func operator(cost func(a, b *exec.Value) int, do func(a, b *exec.Value) any) any {
	return func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		a, b := args.Args[0], args.Args[1]
		if err := budgetOf(e.Environment.Context).produce(cost(a, b)); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(do(a, b))
	}
}

// operators do the same as the library's.
var operators = map[string]any{
	concatName: operator(func(a, b *exec.Value) int { return size(a, b) },
		func(a, b *exec.Value) any { return a.String() + b.String() }),
	productName: operator(func(a, b *exec.Value) int {
		if !a.IsString() || b.IsFloat() {
			return 8
		}
		times, n := b.Integer(), size(a)
		if n > 0 && times > maxValue/n {
			return maxValue + 1
		}
		return n * max(times, 0)
	}, func(a, b *exec.Value) any {
		switch {
		case a.IsFloat() || b.IsFloat():
			return a.Float() * b.Float()
		case a.IsString():
			return strings.Repeat(a.String(), max(b.Integer(), 0))
		}
		return a.Integer() * b.Integer()
	}),
	sumName: operator(func(a, b *exec.Value) int { return size(a, b) }, func(a, b *exec.Value) any {
		switch {
		case a.IsList():
			if !b.IsList() {
				return errors.New("only a list can be added to a list")
			}
			out := make([]any, 0, a.Len()+b.Len())
			for _, v := range []*exec.Value{a, b} {
				for i := range v.Len() {
					out = append(out, v.Index(i).Interface())
				}
			}
			return out
		case a.IsFloat() || b.IsFloat():
			return a.Float() + b.Float()
		case a.IsString() || b.IsString():
			return a.String() + b.String()
		}
		return a.Integer() + b.Integer()
	}),
	madeName: func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		if err := budgetOf(e.Environment.Context).produce(size(args.Args[0])); err != nil {
			return exec.AsValue(err)
		}
		return args.Args[0]
	},
}

// wide finds a format with an explicit large width or precision.
var wide = regexp.MustCompile(`%[^a-zA-Z%]*(\d{4}|\*)|\{[^{}]*\d{4}`)

// makes returns the approximate upper limit of the bytes that a filter, or a method of a string, makes.
func makes(name string, in *exec.Value, p *exec.VarArgs) int {
	all := append([]*exec.Value{in}, p.Args...)
	for _, v := range p.KwArgs {
		all = append(all, v)
	}
	n, largest := size(all...), 0
	for _, v := range all[1:] {
		if v.IsInteger() {
			largest = max(largest, v.Integer())
		}
	}
	times := 1
	switch name {
	case "center", "ljust", "rjust", "zfill", "slice", "batch":
		return n + min(largest, maxValue+1)
	case "indent", "tojson", "expandtabs":
		times = 1 + min(largest, maxValue)
		if name == "indent" {
			times = 1 + strings.Count(in.String(), "\n")
			n += min(largest, maxValue)
		}
	case "replace", "join":
		times = 1 + in.Len()
		if name == "replace" && len(p.Args) > 0 && in.IsString() {
			times = 1 + strings.Count(in.String(), p.Args[0].String())
		}
		if name == "join" && in.IsString() && len(p.Args) > 0 {
			times = 1 + max(in.Len(), p.Args[0].Len())
		}
		if more := size(all[1:]...); n <= maxValue && times <= maxValue/(more+1) {
			return n + times*more
		}
		return maxValue + 1
	case "format", "format_map":
		text := in.String()
		if wide.MatchString(text) {
			return maxValue + 1
		}
		times, n = 1+strings.Count(text, "%")+strings.Count(text, "{"), n+1000
	}
	if times > maxValue/(n+1) {
		return maxValue + 1
	}
	return n * times
}

// filters returns the library's filters, which now count what they make.
func filters(own map[string]exec.FilterFunction, names []string) *exec.FilterSet {
	out := map[string]exec.FilterFunction{}
	for _, name := range names {
		filter := own[name]
		if filter == nil {
			filter, _ = builtins.Filters.Get(name)
		}
		out[name] = func(e *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
			if err := budgetOf(e.Environment.Context).produce(makes(name, in, p)); err != nil && !in.IsError() {
				return exec.AsValue(err)
			}
			return filter(e, in, p)
		}
	}
	return exec.NewFilterSet(out)
}

// methods returns the library's methods. Each call is checked against the limit before it makes anything.
func methods() exec.Methods {
	m := builtins.Methods
	own := map[string]exec.Method[string]{}
	for _, name := range strings.Fields(`
	capitalize capwords casefold center count encode endswith expandtabs find format format_map isalnum
	isalpha isascii isdecimal isdigit islower isnumeric isprintable isspace istitle isupper join ljust
	lower lstrip partition removeprefix removesuffix replace rfind rjust rpartition rsplit rstrip split
	splitlines startswith strip swapcase title upper zfill`) {
		method, ok := m.Str.Get(name)
		if !ok {
			continue
		}
		own[name] = func(self string, v *exec.Value, p *exec.VarArgs) (any, error) {
			if makes(name, v, p) > maxValue {
				return nil, fmt.Errorf("the chat template makes a value of more than %d bytes", maxValue)
			}
			return method(self, v, p)
		}
	}
	m.Str = exec.NewMethodSet(own)
	return m
}
