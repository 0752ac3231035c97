package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// The scripts read like a shell: variables, a command line, and what was
// understood.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" {
			return
		}
		env := map[string]string{}
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "env":
				clear(env)
				for line := range strings.SplitSeq(d.Input, "\n") {
					if k, v, ok := strings.Cut(line, "="); ok {
						env[k] = v
					}
				}
				return ""
			case "file":
				if err := os.WriteFile(filepath.Join(dir, d.CmdArgs[0].Key), []byte(d.Input), 0o600); err != nil {
					t.Fatal(err)
				}
				return ""
			case "run":
				r, err := Parse(words(strings.ReplaceAll(d.Input, "DIR", dir)),
					func(k string) (string, bool) { v, ok := env[k]; return v, ok })
				if err != nil {
					return "error: " + strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
				}
				return strings.ReplaceAll(describe(t, r), dir, "DIR")
			}
			return "unknown command"
		})
	})
}

// words splits a line as a shell does, with single quotes.
func words(line string) []string {
	var out []string
	quoted, begun := false, false
	var w strings.Builder
	for _, c := range line + " " {
		switch {
		case c == '\'':
			quoted, begun = !quoted, true
		case (c == ' ' || c == '\n') && !quoted:
			if begun {
				out = append(out, w.String())
			}
			w.Reset()
			begun = false
		default:
			w.WriteRune(c)
			begun = true
		}
	}
	return out
}

// describe prints what is not zero.
func describe(t *testing.T, r *Result) string {
	var lines []string
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			switch {
			case !v.Type().Field(i).IsExported() || f.IsZero():
			case name == "FakeMetrics":
				lines = append(lines, "FakeMetrics: given")
			case v.Type().Field(i).Anonymous || name == "Engine" || name == "Faults":
				walk(f)
			default:
				if tools, ok := f.Interface().(structured.Options); ok {
					raw, _ := json.Marshal(tools) // pointers print as addresses otherwise
					lines = append(lines, "Tools: "+string(raw))
					continue
				}
				lines = append(lines, fmt.Sprintf("%s: %+v", name, f.Interface()))
			}
		}
	}
	walk(reflect.ValueOf(r.Config))
	sort.Strings(lines)
	for _, note := range r.Notes {
		lines = append(lines, "note: "+note)
	}
	if len(r.Ignored) > 0 {
		lines = append(lines, "ignored: "+strings.Join(r.Ignored, " "))
	}
	o, err := r.Fleet()
	if err != nil {
		return strings.Join(lines, "\n") + "\nfleet error: " + err.Error() + "\n"
	}
	if _, err := modelserver.New(o); err != nil {
		lines = append(lines, "cannot be: "+err.Error())
	}
	for _, s := range o.Servers {
		e := s.Engine
		lines = append(lines, fmt.Sprintf(
			"server %s models=%v blocks=%d×%d context=%d seqs=%d tokens=%d side=%q connector=%s", s.Listen, s.Models,
			e.NumGPUBlocks, e.BlockSize, e.MaxModelLen, e.MaxNumSeqs, e.MaxNumBatchedTokens, s.SideChannel,
			o.Transfer.Profile.Name))
		if timer, ok := e.Timer.(interface{ Source() string }); ok {
			lines = append(lines, "times from "+timer.Source())
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func FuzzParse(f *testing.F) {
	f.Add("vllm serve m --port 8000 -tp 2 --kv-events-config.endpoint tcp://*:5557 --no-enable-prefix-caching")
	f.Add("--model m --lora-modules '{\"name\":\"a\"}' b=c --max-num-seqs 1k")
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "config") && !strings.Contains(line, "-config") {
			return // would read files
		}
		r, err := Parse(words(line), func(string) (string, bool) { return "", false })
		if err != nil {
			return
		}
		r.Tokenizer, r.CertFile = "", "" // files again
		o, err := r.Fleet()
		if err != nil {
			return
		}
		for _, s := range o.Servers {
			if _, _, err := net.SplitHostPort(s.Listen); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("model: m\nport: 8000\nlora-modules: [{name: a}, b=c]\nkv-transfer-config: {kv_role: " +
		"both}\nmax-num-seqs: many"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bytes.Contains(raw, []byte("config")) && !bytes.Contains(raw, []byte("-config")) {
			return // would read files
		}
		p := parser{r: &Result{}}
		var problems strictyaml.Problems
		if err := p.yaml("c.yaml", raw); err != nil && (!errors.As(err, &problems) || problems[0].File != "c.yaml") {
			t.Errorf("%v", err)
		}
	})
}

func TestDataset(t *testing.T) {
	for raw, want := range map[string]string{
		"one\n\ntwo\n": "one|two",
		`{"response":"a"}` + "\n" + `"b"` + "\n" +
			`{"text":"c"}`: "a|b|c",
		`[{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]},` +
			`{"messages":[{"role":"assistant","content":"b"}]}]`: "a|b",
	} {
		got, err := parseDataset([]byte(raw), "")
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%q: got %q, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"", "[1", `{"x":1}`} {
		if got, err := parseDataset([]byte(raw), ""); err == nil {
			t.Errorf("%q: got %q", raw, got)
		}
	}
}

func FuzzDataset(f *testing.F) {
	f.Add([]byte(`[{"conversations":[{"from":"gpt","value":"a"}]}]`))
	if raw, err := os.ReadFile("testdata/answers.sqlite3"); err == nil {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parseDataset(raw, "")
		if err == nil && (len(got) == 0 || len(got) > maxAnswers) {
			t.Fatalf("%d answers", len(got))
		}
		for _, answer := range got {
			if err != nil || answer == "" || len(answer) > maxAnswerBytes {
				t.Fatalf("an answer of %d bytes, with error %v", len(answer), err)
			}
		}
	})
}

// POST /sleep does nothing where llm-d-inference-sim ignores it, and what transfers vary by comes from the flag that
// belongs to their time.
func TestSimOptions(t *testing.T) {
	for line, want := range map[string]struct {
		ignored   bool
		deviation machine.Time
	}{
		"--model m":               {},
		"--model m --mode random": {ignored: true},
		"--model m --mode random --enable-sleep-mode":   {},
		"--model m --no-enable-sleep-mode":              {ignored: true},
		"--model m --mode random --enable-sleep-mode=0": {ignored: true},
		"--model m --enable-sleep-mode --kv-cache-transfer-latency 9 --kv-cache-transfer-latency-std-dev 2 " +
			"--kv-cache-transfer-time-std-dev 3": {deviation: 2 * machine.Millisecond},
		"--model m --enable-sleep-mode --kv-cache-transfer-time-per-token 9us --kv-cache-transfer-latency-std-dev 2 " +
			"--kv-cache-transfer-time-std-dev 3ms": {deviation: 3 * machine.Millisecond},
	} {
		r, err := Parse(strings.Fields(line), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.Fleet()
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Servers[0].IgnoreSleep; got != want.ignored || o.Transfer.Deviation != want.deviation {
			t.Errorf("%s: sleep ignored %v, deviation %v", line, got, o.Transfer.Deviation)
		}
	}
}
