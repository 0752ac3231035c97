// Package shell reads scripts that manifests pass to sh -c, and finds the program that such a script ends up running,
// with its arguments and variables.
//
// Read expands a script as a shell does, and runs nothing: a command substitution is empty, every test of a file is
// false, and every other program succeeds at once. Scripts are bash's or POSIX's.
package shell

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Limits on the cost of one script.
const (
	maxScript  = 32 << 10  // bytes
	maxRead    = 256 << 10 // bytes of all variables that a script's expansions read
	maxSteps   = 10_000    // statements; those of a loop count in each round
	maxPattern = 256       // bytes
	maxDepth   = 100       // nesting of scripts and functions
)

// Command is the program that a script runs.
type Command struct {
	Args []string
	// Env holds the program's environment variables.
	Env map[string]string
	// Notes name what the script uses and Read does not provide.
	Notes []string
}

// Read returns the program that a command line such as sh -c SCRIPT NAME ARGUMENTS runs with the variables env. It is
// the last one that known accepts, or else the last one at all. Read returns nil for a line that starts no shell, and
// for a script that runs no program.
func Read(line []string, env map[string]string, known func(args []string) bool) (c *Command, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some invalid expressions
			c, err = nil, fmt.Errorf("its script cannot be read: %v", r)
		}
	}()
	s := &shell{known: known, vars: map[string]expand.Variable{}, functions: map[string]*syntax.Stmt{}}
	for name, value := range env {
		s.vars[name] = expand.Variable{Set: true, Exported: true, Kind: expand.String, Str: value}
	}
	s.config = &expand.Config{Env: s, CmdSubst: s.substitute}
	if !s.shell(line) || s.err != nil {
		return nil, s.err
	}
	return s.found, nil
}

// shell is the state of the shell that runs a script.
type shell struct {
	known     func([]string) bool
	config    *expand.Config
	vars      map[string]expand.Variable
	args      []string // $0, $1 and so on
	functions map[string]*syntax.Stmt

	read, steps, depth int
	found              *Command
	fits               bool // known accepts the command found
	ended, returned    bool // by exit or exec, and by return
	notes              []string
	err                error
}

func (s *shell) fail(n syntax.Node, format string, args ...any) {
	s.err = cmp.Or(s.err, fmt.Errorf("its script, line %d: %w", n.Pos().Line(), fmt.Errorf(format, args...)))
}

// shell runs the script of a shell's command line. It returns false for any other line.
func (s *shell) shell(line []string) bool {
	line = unwrapped(line)
	if len(line) == 0 || !slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh"}, path.Base(line[0])) {
		return false
	}
	script := false
	for line = line[1:]; len(line) > 0 && strings.HasPrefix(line[0], "-"); line = line[1:] {
		option := line[0]
		script = script || option[1:] != "" && option[1] != '-' && strings.Contains(option, "c")
		if strings.HasSuffix(option, "o") && len(line) > 1 { // -o pipefail
			line = line[1:]
		}
	}
	if !script || len(line) == 0 {
		return false
	}
	defer func(args []string) { s.args = args }(s.args)
	s.args = line[1:]
	s.source(line[0])
	return true
}

// wrappers are programs that only start another one.
var wrappers = strings.Fields("env exec nohup tini dumb-init setsid nice numactl stdbuf")

// unwrapped returns a command line without the programs that only start another one, with their options and variables.
func unwrapped(line []string) []string {
	for i := range line {
		switch word := path.Base(line[i]); {
		case slices.Contains(wrappers, word), i > 0 && (strings.HasPrefix(word, "-") || strings.Contains(line[i], "=")):
		default:
			return line[i:]
		}
	}
	return nil
}

// source runs a text.
func (s *shell) source(text string) {
	if len(text) > maxScript {
		s.err = fmt.Errorf("its script has %d bytes; expected at most %d", len(text), maxScript)
		return
	}
	f, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if e, ok := errors.AsType[syntax.ParseError](err); ok {
		s.err = fmt.Errorf("its script, line %d: %s", e.Pos.Line(), e.Text)
	} else if err != nil {
		s.err = fmt.Errorf("its script: %w", err)
	}
	if s.err != nil {
		return
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		s.check(n)
		return s.err == nil
	})
	if s.depth++; s.depth > maxDepth {
		s.fail(f, "scripts within scripts, more than %d deep", maxDepth)
	}
	s.list(f.Stmts)
	s.depth--
}

// check refuses code that would take far more time or memory than its text.
func (s *shell) check(n syntax.Node) {
	cost := func(words ...*syntax.Word) {
		for _, w := range words {
			if w != nil && w.End().Offset()-w.Pos().Offset() > maxPattern {
				s.fail(n, "a pattern of more than %d bytes", maxPattern)
			}
			syntax.Walk(w, func(x syntax.Node) bool {
				if _, named := x.(*syntax.ParamExp); named {
					s.fail(n, "a pattern with variables; expected one that is written out")
				}
				return true
			})
		}
	}
	switch x := n.(type) {
	case *syntax.ProcSubst, *syntax.ExtGlob:
		s.fail(n, "only bash has this substitution; expected what POSIX has")
	case *syntax.ParamExp:
		if x.Repl != nil {
			cost(x.Repl.Orig, x.Repl.With)
		}
		if x.Exp != nil && x.Exp.Op >= syntax.RemSmallSuffix && x.Exp.Word != nil {
			cost(x.Exp.Word)
		}
	}
}

// list runs statements, and reports the status of the last one.
func (s *shell) list(list []*syntax.Stmt) bool {
	ok := true
	for _, x := range list {
		if s.err == nil && !s.ended && !s.returned {
			ok = s.statement(x)
		}
	}
	return ok
}

func (s *shell) statement(x *syntax.Stmt) bool {
	if s.steps++; s.steps > maxSteps {
		s.fail(x, "more than %d statements are run", maxSteps)
		return false
	}
	return s.command(x.Cmd) != x.Negated
}

// command reports whether a command succeeds.
func (s *shell) command(c syntax.Command) bool {
	switch c := c.(type) {
	case *syntax.CallExpr:
		return s.call(c)
	case *syntax.DeclClause:
		for _, a := range c.Args {
			s.declare(c.Variant.Value, a)
		}
	case *syntax.BinaryCmd:
		left := s.list([]*syntax.Stmt{c.X})
		if c.Op == syntax.AndStmt && !left || c.Op == syntax.OrStmt && left || c.Op == syntax.Pipe ||
			c.Op == syntax.PipeAll {
			return left
		}
		return s.list([]*syntax.Stmt{c.Y})
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			if len(c.Cond) == 0 || s.list(c.Cond) {
				return s.list(c.Then)
			}
		}
	case *syntax.CaseClause:
		word := s.literal(c.Word)
		for _, item := range c.Items {
			if slices.ContainsFunc(item.Patterns, func(p *syntax.Word) bool { return s.match(word, p) }) {
				return s.list(item.Stmts)
			}
		}
	case *syntax.WhileClause:
		if s.list(c.Cond) != c.Until {
			return s.list(c.Do)
		}
	case *syntax.ForClause:
		words, ok := c.Loop.(*syntax.WordIter)
		if !ok {
			return s.list(c.Do)
		}
		values := s.fields(words.Items)
		if !words.InPos.IsValid() {
			values = s.Get("@").List
		}
		for _, v := range values {
			s.set(words.Name.Value, v)
			s.list(c.Do)
		}
	case *syntax.Block:
		return s.list(c.Stmts)
	case *syntax.Subshell:
		return s.list(c.Stmts)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return s.statement(c.Stmt)
		}
	case *syntax.FuncDecl:
		s.functions[c.Name.Value] = c.Body
	case *syntax.TestClause:
		return s.test(c.X)
	case *syntax.ArithmCmd:
		n, err := expand.Arithm(s.config, c.X)
		if err != nil {
			s.fail(c, "%w", err)
		}
		return n != 0
	}
	return true
}

// call runs a simple command.
func (s *shell) call(c *syntax.CallExpr) bool {
	args := s.fields(c.Args)
	if s.err != nil {
		return false
	}
	before := maps.Clone(s.vars)
	for _, a := range c.Assigns {
		if s.assign(a); len(args) > 0 {
			s.declare("export", &syntax.Assign{Name: a.Name, Naked: true})
		}
	}
	if len(args) == 0 {
		return true
	}
	ok := s.run(c, args)
	if len(c.Assigns) > 0 {
		s.vars = before
	}
	return ok
}

// run runs a command: one of the shell's own, or a program.
func (s *shell) run(n syntax.Node, args []string) bool {
	rest := args[1:]
	switch args[0] {
	case "false":
		return false
	case ":", "true", "cd", "command", "echo", "printf", "sleep", "wait", "trap", "ulimit", "umask", "source", ".":
	case "exit":
		s.ended = true
	case "return":
		s.returned = true
	case "eval":
		s.source(strings.Join(rest, " "))
	case "[", "test":
		if args[0] == "[" && len(rest) > 0 {
			rest = rest[:len(rest)-1]
		}
		return s.holds(n, rest)
	case "set":
		if i := slices.Index(rest, "--"); i >= 0 {
			s.args = append([]string{s.Get("0").Str}, rest[i+1:]...)
		}
	case "shift":
		s.args = slices.Delete(slices.Clone(s.args), min(1, len(s.args)), min(2, len(s.args)))
	case "unset":
		for _, name := range rest {
			delete(s.vars, name)
		}
	default:
		if f := s.functions[args[0]]; f != nil {
			if s.depth++; s.depth > maxDepth {
				s.fail(n, "functions within functions, more than %d deep", maxDepth)
			}
			defer func(args []string) { s.args = args; s.depth--; s.returned = false }(s.args)
			s.args = append([]string{s.Get("0").Str}, rest...)
			return s.list([]*syntax.Stmt{f})
		}
		s.program(args)
	}
	return true
}

// program notes that the script runs a program, and ends the script where the program takes the shell's place.
func (s *shell) program(args []string) {
	line := unwrapped(args)
	s.ended = args[0] == "exec" && len(line) > 0
	if len(line) == 0 || s.shell(line) {
		return
	}
	fits := s.known(line)
	if s.fits && !fits {
		return
	}
	s.fits, s.found = fits, &Command{Args: line, Env: map[string]string{}, Notes: s.notes}
	for name, v := range s.vars {
		if v.Exported && v.Set {
			s.found.Env[name] = v.String()
		}
	}
	for _, word := range args[:len(args)-len(line)] { // of env NAME=VALUE
		if name, value, ok := strings.Cut(word, "="); ok && syntax.ValidName(name) {
			s.found.Env[name] = value
		}
	}
}
