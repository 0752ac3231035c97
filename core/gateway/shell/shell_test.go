package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func known(args []string) bool { return args[0] == "vllm" || args[0] == "python3" }

// run returns what a script runs, each word in brackets, behind the variables that are not of env.
func run(t *testing.T, line []string) string {
	t.Helper()
	env := map[string]string{"PORT": "9000", "EMPTY": "", "ARGS": "--a 1  --b '2'"}
	c, err := Read(line, env, known)
	if err != nil {
		return "error: " + err.Error()
	}
	if c == nil {
		return "none"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if _, given := env[name]; !given {
			fmt.Fprintf(&b, "%s=%s ", name, c.Env[name])
		}
	}
	for _, word := range c.Args {
		fmt.Fprintf(&b, "[%s]", word)
	}
	return b.String()
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, x := range [][2]string{
		{`vllm serve m --x '{"a": "b c"}' "--y=$PORT" --z\ z`,
			`[vllm][serve][m][--x][{"a": "b c"}][--y=9000][--z z]`},
		{"vllm serve \\\n  m # a model", "[vllm][serve][m]"},
		{`vllm $ARGS "$EMPTY" $EMPTY`, "[vllm][--a][1][--b]['2'][]"},
		{`vllm ${PORT:-8000} ${P:-8000} ${P-x} ${PORT:+on} ${#PORT}`, "[vllm][9000][8000][x][on][4]"},
		{`vllm $((PORT + 1)) ${ARGS%% *} ${PORT//0/1}`, "[vllm][9001][--a][9111]"},
		{`export X=1 Y="a b"; Z=2; cd /x && vllm $Z`, "X=1 Y=a b [vllm][2]"},
		{`X=1 vllm "$X"; echo $X`, "X=1 [vllm][]"},
		{`env X=1 /usr/bin/env vllm a`, "X=1 [vllm][a]"},
		{`PORT=1; vllm $PORT`, "[vllm][1]"},
		{`vllm a | tee /log`, "[vllm][a]"},
		{`vllm a & sleep 5; curl localhost; wait`, "[vllm][a]"},
		{`python3 -m vllm.entrypoints.openai.api_server --a; curl x`,
			"[python3][-m][vllm.entrypoints.openai.api_server][--a]"},
		{`mkdir -p /x; ./start --a`, "[./start][--a]"},
		{`false && vllm a || vllm b`, "[vllm][b]"},
		{`exec vllm a; vllm b`, "[vllm][a]"},
		{`vllm a; exit 0; vllm b`, "[vllm][a]"},
		{`if [ "$PORT" = 9000 ]; then vllm a; else vllm b; fi`, "[vllm][a]"},
		{`if [ -z "$PORT" ]; then vllm a; elif [ ! -n "$N" -a 2 -gt 1 ]; then vllm b; fi`, "[vllm][b]"},
		{`if [[ $PORT == 9* && ! -f /x && $PORT =~ ^[0-9]+$ ]]; then vllm a; fi`, "[vllm][a]"},
		{`if (( PORT > 9000 )); then vllm a; else vllm b; fi`, "[vllm][b]"},
		{`case $PORT in 8*) vllm a;; 9*|x) vllm b;; esac`, "[vllm][b]"},
		{`for i in 1 2; do A="$A -$i"; done; vllm $A`, "[vllm][-1][-2]"},
		{`for a; do B="$B <$a>"; done; vllm "$B"`, "[vllm][ <one> <two words>]"},
		{`while true; do vllm a; done`, "[vllm][a]"},
		{`f() { [ $1 ] || return; vllm $1; }; f; f x`, "[vllm][x]"},
		{`eval "exec vllm $ARGS"`, "[vllm][--a][1][--b][2]"},
		{`vllm $0 "$@" $#; set -- y; vllm "$@"`, "[vllm][y]"},
		{`vllm "$@"; shift; vllm "$@" ~/x ~joe`, "[vllm][two words][~/x][/home/joe]"},
		{`v=(a "b c"); v+=(d); vllm "${v[@]}"`, "[vllm][a][b c][d]"},
		{`sh -c 'vllm $PORT'`, "[vllm][9000]"},
		{"V=$(vllm --version | tail -1); [ -n \"$V\" ] && vllm a || vllm b", "[vllm][b]"},
		{"cat <<E\n$PORT\nE\nvllm a", "[vllm][a]"},
		{"# nothing", "none"},
		{"echo a\nvllm 'a", "error: its script, line 2: reached EOF without closing quote `'`"},
		{"\nvllm ${NO:?is needed}", "error: its script, line 2: NO: is needed"},
		{"vllm {a,b}",
			"error: its script, line 1: braces that stand for several words; expected the words, or quotes"},
		{"vllm <(x)", "error: its script, line 1: only bash has this substitution; expected what POSIX has"},
	} {
		got := run(t, []string{"/bin/bash", "-euo", "pipefail", "-c", x[0], "zero", "one", "two words"})
		if got = strings.ReplaceAll(got, "[zero][one][two words][2]", ""); got != x[1] {
			t.Errorf("%s\nexpected %s\ngot      %s", x[0], x[1], got)
		}
	}
	for _, line := range [][]string{nil, {"vllm", "serve"}, {"bash", "start.sh"}, {"sh", "-c"}, {"-c", "vllm"}} {
		if got := run(t, line); got != "none" {
			t.Errorf("%q: expected no script, got %s", line, got)
		}
	}
	if got := run(t, []string{"tini", "--", "/bin/sh", "-lc", "vllm a"}); got != "[vllm][a]" {
		t.Errorf("behind tini: got %s", got)
	}
}

// What a script may cost is bounded, whatever it asks for.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"doubling":   "x=0123456789;" + strings.Repeat("x=$x$x;", 60) + "vllm $x",
		"many reads": "x=" + strings.Repeat("0", 20_000) + "; vllm " + strings.Repeat("$x", 100),
		"loops":      strings.Repeat("for i in 1 2 3 4 5 6 7 8 9 10; do ", 12) + ":" + strings.Repeat("; done", 12),
		"recursion":  "f() { f; }; f",
		"eval":       `x='eval "$x"'; eval "$x"`,
		"long":       strings.Repeat("a", maxScript+1),
		"pattern":    "x=" + strings.Repeat("0", 1000) + "; vllm ${x//" + strings.Repeat("0*", 500) + "/y}",
		"regexp":     "[[ a =~ " + strings.Repeat("(a*)*", 500) + " ]]",
		"braces":     "vllm {1..1000000000}",
		"deep":       strings.Repeat("(", 30_000),
		"arithmetic": "vllm $((" + strings.Repeat("(", 30_000) + "1",
	} {
		if c, err := Read([]string{"sh", "-c", script}, nil, known); err == nil {
			t.Errorf("%s: expected an error, got %d words", name, len(c.Args))
		}
	}
}

// Any script is refused or understood.
func FuzzRead(f *testing.F) {
	f.Add(`export A="b c"; if [ -n "$A" ]; then exec vllm ${A%% *} $((1+2)) "$@"; fi`)
	f.Add(`case $A in a*) eval "vllm ${A:-x}";; esac; for i in 1 2; do f() { vllm; }; f; done`)
	f.Add(`[[ $A =~ ^[a-z]+$ && a == b* ]] && v=(a b) || (( A++ )); vllm "${v[@]}" $'\x41' ${A@Q} ${!A} ${A^^}`)
	f.Fuzz(func(t *testing.T, script string) {
		c, err := Read([]string{"bash", "-c", script, "0", "1"}, map[string]string{"A": "a"}, known)
		if err == nil && c != nil && len(c.Args) == 0 {
			t.Error("a program without a name")
		}
	})
}
