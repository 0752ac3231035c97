package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// The scripts in testdata read a scenario and print the result: the problems, or the fields that the script asks for.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "files") {
			return // what the scripts refer to
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := d.Input
			if !d.HasArg("whole") && d.Cmd != "show" {
				text = "apiVersion: windtunnel/v1alpha1\nkind: Scenario\n" + text
			}
			s, err := Parse("my.yaml", []byte(strings.ReplaceAll(text, "⇥", "\t")))
			if err != nil {
				return err.Error() + "\n"
			}
			switch d.Cmd {
			case "check":
				return "fine\n"
			case "show":
				return show(s)
			case "engine":
				return showEngine(t, s)
			case "sends":
				return showSent(t, s)
			case "prompts":
				return showPrompts(t, s)
			case "scales":
				return showScaling(s)
			case "replays":
				return showRequests(t, s)
			case "arrives":
				var every string
				d.ScanArgs(t, "every", &every)
				return showArrivals(t, s, every)
			}
			return "unknown command " + d.Cmd
		})
	})
}

func show(s *Scenario) string {
	var b strings.Builder
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch {
		case IsSection(v.Type()):
			for _, f := range strictyaml.Fields(v.Type()) {
				walk(v.FieldByIndex(f.Index), strings.TrimPrefix(path+"."+f.Name, "."))
			}
		case v.Kind() == reflect.Slice && IsSection(v.Type().Elem()):
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		case !v.IsZero():
			fmt.Fprintf(&b, "%s: %v\n", path, v.Interface())
		}
	}
	walk(reflect.ValueOf(s).Elem(), "")
	return b.String()
}

// showEngine prints the engine of a model server of each group of the first pool.
func showEngine(t *testing.T, s *Scenario) string {
	p := &s.Pools[0]
	if len(p.Groups) == 0 {
		return showServer(t, s, 0)
	}
	out := ""
	for _, d := range p.Deployments() {
		out += d.serverName(d.First) + ": " + showServer(t, s, d.First)
	}
	return out
}

func showServer(t *testing.T, s *Scenario, index int) string {
	p := &s.Pools[0]
	m := p.Server(index)
	c, err := s.engine(p, p.DeploymentOf(index), index)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	c = e.Config()
	out := ""
	for _, note := range s.Assumed() {
		out += "note: " + note + "\n"
	}
	out += fmt.Sprintf("%s\nseqs %d tokens %d length %d, %d KV blocks of %d (%d bytes per token), %d in host memory\n",
		m.hardware.timer.Source(),
		c.MaxNumSeqs, c.MaxNumBatchedTokens, c.MaxModelLen, c.NumGPUBlocks, c.BlockSize, c.KVBytesPerToken,
		c.NumCPUBlocks)
	out += fmt.Sprintf("prefill of 1000 tokens %v, decode of 8 sequences of 1000 tokens %v\n",
		c.Timer.StepTime(&engine.Step{PrefillSeqs: 1, PrefillFinished: 1, PrefillTokens: 1000,
			PrefillPairs: 500500}).Time(),
		c.Timer.StepTime(&engine.Step{DecodeSeqs: 8, DecodeContext: 8000}).Time())
	if err := m.outOfMemory(); err != nil {
		out += "OOMKilled: " + err.Error() + "\n"
	}
	return out
}

// showPrompts prints for each class the number of different beginnings of its prompts, their length in characters and
// in bytes, and whether one has other characters than letters, digits and spaces.
func showPrompts(t *testing.T, s *Scenario) string {
	type prompts struct {
		beginnings                  map[string]bool
		least, most, bytes, mean, n int
		odd                         bool
	}
	of, order := map[string]*prompts{}, []string{}
	c := s.Generator()
	for i := 0; ; i++ {
		v := c.Conversation(i, i)
		if v == nil {
			break
		}
		r := v.Request()
		var body struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal(r.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		text := body.Messages[0].Content
		n := utf8.RuneCountInString(text)
		x := of[r.Class]
		if x == nil {
			x = &prompts{beginnings: map[string]bool{}, least: n}
			of[r.Class], order = x, append(order, r.Class)
		}
		x.beginnings[text[:min(len(text), 12)]] = true
		x.least, x.most, x.bytes, x.mean, x.n = min(x.least, n), max(x.most, n), max(x.bytes, len(text)), x.mean+n,
			x.n+1
		x.odd = x.odd || strings.ContainsFunc(text,
			func(c rune) bool { return c != ' ' && !(c < 128 && (unicode.IsLetter(c) || unicode.IsDigit(c))) })
	}
	out := ""
	slices.Sort(order)
	for i, name := range order {
		x := of[name]
		out += strings.TrimSpace(
			fmt.Sprintf("%s %d prompts of %d to %d characters, %d on average, at most %d bytes, %d beginnings", name,
				x.n, x.least, x.most, x.mean/x.n, x.bytes, len(x.beginnings)))
		if x.odd {
			out += ", of any characters"
		}
		out += "\n"
		for _, other := range order[:i] {
			for b := range x.beginnings {
				if of[other].beginnings[b] {
					out += "  one of them is also one of " + other + "\n"
				}
			}
		}
	}
	return out
}

// showScaling prints the autoscalers of the first pool, its lifecycle and its price.
func showScaling(s *Scenario) string {
	var b strings.Builder
	for _, note := range s.Assumed() {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	p := &s.Pools[0]
	for _, d := range p.Deployments() {
		l := s.planDeployment(&d).Config
		price, gpus, accelerator := p.Cost(&d)
		fmt.Fprintf(&b, "%s: %d servers, up to %d places, start %v to %v, leave %v of %v, %d x %s at %g USD (%s)\n",
			d.Name, d.Replicas, d.Places,
			time.Duration(l.Startup.Quantile(0)), time.Duration(l.Startup.Quantile(1)), l.PreStop, l.Grace, gpus,
			accelerator, price.PerGPUHour, price.Source)
		if d.Autoscaling == nil {
			continue
		}
		c := s.scaler(&d)
		fmt.Fprintf(&b, "%d to %d, KEDA %v polls each %v, cools down %v; scraped each %v, synced each %v\n", c.Min,
			c.Max, c.KEDA, c.Poll, c.Cooldown, c.Scrape, c.Sync)
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "  each %v %s is %s\n", r.Interval, r.Record, r.Query)
		}
		for _, x := range c.Triggers {
			fmt.Fprintf(&b, "  %s: %s, %s %g, active above %g\n", x.Name, x.Query, x.Kind, float64(x.Target)/1000,
				x.Activation)
		}
		if f := c.Formula; f != nil {
			fmt.Fprintf(&b, "  formula %q, %s %g\n", f.Text, f.Kind, float64(f.Target)/1000)
		}
		if f := c.Fallback; f != nil {
			fmt.Fprintf(&b, "  after %d failures %s %d\n", f.FailureThreshold, f.Behavior, f.Replicas)
		}
		for _, r := range []struct {
			name string
			autoscaler.Rules
		}{{"up", c.Behavior.Up}, {"down", c.Behavior.Down}} {
			fmt.Fprintf(&b, "  %s: window %v, %v, %s, tolerance %g\n", r.name, r.Window, r.Policies, r.SelectPolicy,
				r.Tolerance)
		}
	}
	return b.String()
}

// showSent prints the first request of every class, in the order in which they are first sent, with the lengths of its
// prompt and of its shared beginning in place of the prompt; and the number of requests of each class.
func showSent(t *testing.T, s *Scenario) string {
	var order []string
	first, number := map[string]string{}, map[string]int{}
	c := s.Generator()
	for i, sent := 0, 0; ; i++ {
		v := c.Conversation(i, sent)
		if v == nil {
			break
		}
		sent += v.Turns
		r := v.Request()
		if number[r.Class] += v.Turns; first[r.Class] != "" {
			continue
		}
		order = append(order, r.Class)
		var body map[string]any
		if err := json.Unmarshal(r.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		for _, m := range body["messages"].([]any) {
			m := m.(map[string]any)
			m["content"] = fmt.Sprintf("%d characters", len(m["content"].(string)))
		}
		note, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s %s%s, %d turns\n", r.Class, r.Host, r.Path, v.Turns)
		for _, h := range r.Header {
			text += fmt.Sprintf("  %s: %s\n", h.Name, h.Value)
		}
		if r.SLO != "" {
			text += "  good within " + r.SLO + "\n"
		}
		first[r.Class] = fmt.Sprintf("%s  %s\n", text, note)
	}
	out := ""
	for _, name := range order {
		out += fmt.Sprintf("%d requests of %s", number[name], first[name])
	}
	return out
}

// showRequests prints for each request of a trace its time, the length of its prompt, the request with the same
// beginning, and the requested tokens; and the assumptions.
func showRequests(t *testing.T, s *Scenario) string {
	c, out := s.Generator(), ""
	arrivals, prompts := c.Arrivals(), []string{}
	for i := 0; ; i++ {
		v := c.Conversation(i, i)
		if v == nil {
			break
		}
		r := v.Request()
		at, _ := arrivals.Next()
		var body struct {
			Messages []struct{ Content string }
			Prompt   string
			Most     int `json:"max_tokens"`
			Least    int `json:"min_tokens"`
		}
		if err := json.Unmarshal(r.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("%.3f s, %d messages, ", at.Seconds(), len(body.Messages))
		for _, m := range body.Messages {
			body.Prompt += m.Content
		}
		out += fmt.Sprintf("%d characters", len(body.Prompt))
		for k, p := range prompts {
			n := 0
			for n < min(len(p), len(body.Prompt)) && p[n] == body.Prompt[n] {
				n++
			}
			if n > 8 { // not by chance
				out += fmt.Sprintf(", %d of them as in %d", n, k+1)
			}
		}
		prompts = append(prompts, body.Prompt)
		out += fmt.Sprintf(", %d to %d tokens of answer\n", body.Least, body.Most)
	}
	for _, note := range s.Assumed() {
		out += "note: " + note + "\n"
	}
	return out
}

// showArrivals prints how many conversations begin in each stretch of time, and how much the times between them vary.
func showArrivals(t *testing.T, s *Scenario, every string) string {
	each, err := time.ParseDuration(every)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	var last machine.Time
	n, sum, squares, sent := 0, 0.0, 0.0, 0
	c := s.Generator()
	for a := c.Arrivals(); c.Conversation(n, sent) != nil; n++ {
		at, more := a.Next()
		if !more {
			break
		}
		sent += c.Conversation(n, sent).Turns
		for len(counts) <= int(at/machine.FromDuration(each)) {
			counts = append(counts, 0)
		}
		counts[at/machine.FromDuration(each)]++
		gap := (at - last).Seconds()
		sum, squares, last = sum+gap, squares+gap*gap, at
	}
	mean := sum / float64(n)
	return fmt.Sprintf("%v\n%d requests in %d conversations, gaps vary by %.1f of their mean\n", counts,
		s.Workload.Requests, n, math.Sqrt(max(0, squares/float64(n)-mean*mean))/mean)
}

func TestEmbedded(t *testing.T) {
	s := Embedded()
	p := s.Pools[0]
	if p.Flow != Held || p.ModelServer.Prefill.Quantile(1) > 3e9 {
		t.Fatalf("the embedded scenario is not the short held-open request: %+v", p)
	}
}

// Every example in the repository is a scenario that is read without a word.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples found", err)
	}
	for _, file := range files {
		if _, err := Load(file); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestOverride(t *testing.T) {
	s := Embedded()
	seed := uint64(9)
	if err := s.Override(Overrides{Seed: &seed, Requests: new(5), Concurrency: new(2), Prefill: "2m",
		Endpoints: []string{"127.0.0.1:8000"}}); err != nil {
		t.Fatal(err)
	}
	p := s.Pools[0]
	if s.Seed != 9 || s.Workload.Requests != 5 || s.Workload.Concurrency != 2 || p.Replicas != 0 ||
		len(p.Endpoints) != 1 {
		t.Fatalf("%+v", s)
	}
	if p.EPP.HoldLimit.Minutes() < 4 {
		t.Fatalf("a hold limit of %v cuts the prefill that was asked for", p.EPP.HoldLimit)
	}
	err := Embedded().Override(
		Overrides{Requests: new(-1), Concurrency: new(1 << 30), Rate: new(-2.0), Prefill: "30",
			Endpoints: []string{"nowhere"}})
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 5 {
		t.Fatalf("got %v", err)
	}
	for i, flag := range []string{"--requests", "--concurrency", "--rate", "--endpoint", "--prefill"} {
		if problems[i].Path != flag {
			t.Errorf("problem %d is about %s, expected %s", i, problems[i].Path, flag)
		}
	}
}

func TestPickerConfig(t *testing.T) {
	dir := t.TempDir()
	head := "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n- name: a\n  epp:\n    config: "
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: " +
		"queue-scorer\n"
	write("picker.yaml", good)
	s, err := Load(write("byfile.yaml", head+"picker.yaml\n"))
	if err != nil || string(s.Pools[0].EPP.Config.Text) != good {
		t.Fatalf("%v %+v", err, s)
	}
	s, err = Load(write("inline.yaml",
		head+"{plugins: [{type: queue-scorer}], schedulingProfiles: [{name: default, plugins: [{pluginRef: "+
			"queue-scorer}]}]}\n"))
	if err != nil || !strings.Contains(string(s.Pools[0].EPP.Config.Text), "queue-scorer") {
		t.Fatalf("%v", err)
	}
	for text, want := range map[string]string{
		"{plugins: [{type: nothing-scorer}]}": "x.yaml:6:31: pools[0].epp.config.plugins[0].type: " +
			"plugin type 'nothing-scorer'",
		"\n      plugins:\n\n      - type: nothing-scorer\n": "x.yaml:9:15: pools[0].epp.config.plugins[0].type: " +
			"plugin type 'nothing-scorer'",
	} {
		if _, err := Parse("x.yaml", []byte(head+text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.200v", err)
		}
	}
	write("wrong.yaml", strings.Replace(good, "pluginRef:", "plugin:", 1))
	if _, err = Load(write("bywrongfile.yaml", head+"wrong.yaml\n")); err == nil ||
		!strings.Contains(err.Error(), "wrong.yaml:6:") {
		t.Fatalf("%v", err)
	}
	if _, err = Load(write("missing.yaml", head+"nothere.yaml\n")); err == nil ||
		!strings.Contains(err.Error(), "missing.yaml:6:13: pools[0].epp.config") {
		t.Fatalf("%v", err)
	}
	if _, err = Load(write("big.yaml", strings.Repeat("# long\n", MaxFileBytes/7+1))); err == nil ||
		!strings.Contains(err.Error(), "has more than") {
		t.Fatalf("%v", err)
	}
}

func TestBytesRoundTrip(t *testing.T) {
	for _, text := range []string{"0", "1", "1000", "1KiB", "4MiB", "3GiB", "1..4MiB"} {
		r, err := size.ParseRange(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: got %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "-1", "4 apples", "NaN", "1e400", "0.5", "2..1", "1..", "99999TiB"} {
		if r, err := size.ParseRange(text); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(embedded)
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("pools: &a\n- name: *a\n  epp: {config: &b {x: *b}}"))
	f.Add([]byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: 1, modelServer: {prefill: {mean: " +
		"1ms}}}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz.yaml", data)
		if (s == nil) == (err == nil) {
			t.Fatal("neither a scenario nor an error")
		}
		var problems Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("not Problems: %v", err)
		}
	})
}

// A server that batches gets its step times from the accelerator, or from
// constants; one timer serves all replicas.
func TestStepTimes(t *testing.T) {
	for _, c := range []struct{ server, source string }{
		{"{batching: continuous}", "H100"},
		{"{batching: continuous, accelerator: A100-80GB, tensorParallelSize: 2}", "TP 2"},
		{"{batching: none, prefill: 1s, interTokenLatency: 10ms}", "constant"},
	} {
		s, err := Parse("x.yaml",
			[]byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a, replicas: 2, modelServer: "+
				c.server+"}]}"))
		if err != nil {
			t.Error(err)
			continue
		}
		p := &s.Pools[0]
		for i := range 2 {
			config, err := s.engine(p, p.DeploymentOf(i), i)
			if err != nil {
				t.Fatal(err)
			}
			if timer := p.ModelServer.hardware.timer; config.Timer != timer ||
				!strings.Contains(strings.ToLower(timer.Source()), strings.ToLower(c.source)) {
				t.Errorf("%s: the timer is %s", c.server, timer.Source())
			}
		}
	}
}

// The error for a file of another version names the version, beside the fields that are unknown because of it.
func TestOtherVersionIsSaid(t *testing.T) {
	_, err := Parse("my.yaml", []byte("apiVersion: windtunnel/v2\nkind: Scenario\nroutes: []\n"))
	if err == nil || !strings.Contains(err.Error(), `my.yaml:1:13: apiVersion: found "windtunnel/v2"`) ||
		!strings.Contains(err.Error(), "routes: unknown field") {
		t.Fatal(err)
	}
}

func TestOverrideBatching(t *testing.T) {
	if err := Embedded().Override(Overrides{Batching: "static"}); err == nil ||
		!strings.Contains(err.Error(), "no pool of the scenario batches") {
		t.Error(err)
	}
	s, err := Load("../examples/batching.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Override(Overrides{Batching: "independent"}); err == nil {
		t.Error("independent was taken")
	}
	if err := s.Override(Overrides{Batching: "none"}); err != nil || s.Pools[0].ModelServer.Batching != NoBatching {
		t.Error(err)
	}
}

// INT8 halves what travels.
func TestCompressINT8(t *testing.T) {
	p := Pool{}
	p.Disaggregation.defaults()
	if whole := p.link().Bytes(1 << 20); whole != 1<<20 {
		t.Fatal(whole)
	}
	p.Disaggregation.CompressINT8 = true
	if half := p.link().Bytes(1 << 20); half != 1<<19 {
		t.Fatal(half)
	}
}
