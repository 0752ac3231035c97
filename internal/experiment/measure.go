package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"

	"github.com/windtunnel/windtunnel/internal/search"
)

// Play plays a command line and returns what expressions compute with.
type Play func(ctx context.Context, line string) (any, error)

// Measure measures figures, as many at once as there are processors. plays has the functions of expressions by name;
// each joins its arguments to a command line, and plays each line once. done is called after each figure. The
// error names the expression.
func (e *Experiment) Measure(ctx context.Context, figures []Figure, plays map[string]Play, done func()) error {
	env := map[string]any{}
	for name, words := range e.Commands {
		env[name] = words
	}
	for name, play := range plays {
		env[name] = once(ctx, play)
	}
	return search.Each(len(figures), func(i int) error {
		f := &figures[i]
		var err error
		if f.Measured, err = f.measure(env); err != nil {
			return fmt.Errorf("experiments/%s.yaml: {%s: %s}: %w", e.Name, f.digits, f.Expression, err)
		}
		done()
		return ctx.Err()
	})
}

// once returns a function of expressions that plays each command line once.
func once(ctx context.Context, play Play) func(parts ...string) (any, error) {
	var mu sync.Mutex
	played := map[string]func() (any, error){}
	return func(parts ...string) (any, error) {
		line := strings.Join(parts, " ")
		mu.Lock()
		out := played[line]
		if out == nil {
			out = sync.OnceValues(func() (any, error) { return play(ctx, line) })
			played[line] = out
		}
		mu.Unlock()
		return out()
	}
}

// measure evaluates the expression and returns the number as pages print it: with commas between thousands.
func (f *Figure) measure(env map[string]any) (string, error) {
	digits, err := strconv.Atoi(strings.TrimPrefix(f.digits, "+"))
	if err != nil {
		return "", fmt.Errorf("found %q before the colon; expected a number of digits", f.digits)
	}
	program, err := expr.Compile(f.Expression, expr.Env(env))
	if err != nil {
		return "", err
	}
	out, err := expr.Run(program, env)
	if at := (*file.Error)(nil); errors.As(err, &at) && at.Prev != nil {
		err = at.Prev // without the place in the expression
	}
	if err != nil {
		return "", err
	}
	value, ok := out.(float64)
	if n, whole := out.(int); whole {
		value, ok = float64(n), true
	}
	if !ok || math.IsNaN(value) || math.IsInf(value, 0) {
		return "", fmt.Errorf("found %v; expected a number", out)
	}
	return printed(value, digits, strings.HasPrefix(f.digits, "+")), nil
}

func printed(value float64, digits int, signed bool) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(value), 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	switch {
	case value < 0:
		return "−" + whole
	case signed:
		return "+" + whole
	}
	return whole
}
