package program

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// printed returns the output of a command.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = terminal.PrintableWriter(&stdout), &stderr, false, 0
	if code := run(args, o); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, &stderr)
	}
	return stdout.String()
}

// Every output format has the content of the summary: requests that did not complete with the reason, every measure
// with its interval or the reason for none, each server, incidents.
func TestFormsTellTheSame(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "verdict.xml")
	command := []string{"sim", "../../../examples/incidents.yaml", "--output"}
	text := printed(t, append(command, "json", "--junit", file)...)
	var line struct{ Summary report.Summary }
	if err := json.Unmarshal([]byte(text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]), &line); err != nil {
		t.Fatal(err)
	}
	want := line.Summary
	if want.Failed() == 0 || len(want.Refusals) == 0 || len(want.Incidents) == 0 || len(want.Measures) == 0 ||
		len(want.Load) == 0 {
		t.Fatalf("the example has nothing of what is compared: %+v", want)
	}

	t.Run("parquet", func(t *testing.T) {
		file := printed(t, append(command, "parquet")...)
		f, err := parquet.OpenFile(strings.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, c := range f.Root().Columns() {
			columns = append(columns, c.Name())
		}
		if header, _, _ := strings.Cut(printed(t, append(command, "csv")...), "\n"); strings.Join(columns,
			",") != header || f.NumRows() != int64(want.Requests) {
			t.Errorf("%d rows of %v; expected %d of %s", f.NumRows(), columns, want.Requests, header)
		}
		if err := (&shownIn{Output: "parquet"}).fits(&outside{Terminal: true}); err == nil {
			t.Error("a terminal is given a Parquet file")
		}
	})
	t.Run("csv", func(t *testing.T) {
		rows, err := csv.NewReader(strings.NewReader(printed(t, append(command, "csv")...))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, column := range rows[0] {
			at[column] = i
		}
		outcomes, refused := map[record.Outcome]int{}, 0
		for _, row := range rows[1:] {
			o := record.Outcome(row[at["outcome"]])
			outcomes[o]++
			if (row[at["reason"]] == "") != (o == record.Completed) {
				t.Errorf("%s has the reason %q", o, row[at["reason"]])
			}
			if o == record.Completed && row[at["status"]] != "200" {
				t.Errorf("a request completed with the status %q", row[at["status"]])
			}
			if text := row[at["refusal"]]; text != "" {
				if refused++; want.Refusals[text] == 0 {
					t.Errorf("the summary has no refusal %q: %v", text, want.Refusals)
				}
			}
		}
		if d := cmp.Diff(want.Outcomes, outcomes); d != "" || refused == 0 {
			t.Errorf("%d rows have a refusal; outcomes of the summary (-) and rows (+):\n%s", refused, d)
		}
	})

	t.Run("inference-perf", func(t *testing.T) {
		var got struct {
			Failures struct {
				Labels map[record.Outcome]struct {
					Count    int
					Messages []struct{ Message string }
				} `json:"by_label"`
			}
		}
		if err := json.Unmarshal([]byte(printed(t, append(command, "inference-perf")...)), &got); err != nil {
			t.Fatal(err)
		}
		for o, n := range want.Outcomes {
			x := got.Failures.Labels[o]
			if o != record.Completed && (x.Count != n || len(x.Messages) == 0 || x.Messages[0].Message == "") {
				t.Errorf("%s: %+v, expected %d and why", o, x, n)
			}
		}
	})

	t.Run("llm-d-benchmark", func(t *testing.T) {
		var got struct {
			Results struct {
				Profiling struct {
					Measures map[string]struct {
						Value     float64
						Low, High *float64
						Why       string
					} `yaml:"windtunnel"`
					Summary any `yaml:"windtunnel_summary"`
				}
				Observability struct {
					Components []struct {
						Label   string         `yaml:"component_label"`
						Replica string         `yaml:"replica_id"`
						Has     map[string]any `yaml:"aggregate"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(printed(t, append(command, "llm-d-benchmark")...)), &got); err != nil {
			t.Fatal(err)
		}
		for _, m := range want.Measures {
			x, known := got.Results.Profiling.Measures[m.Measure]
			if y := (report.Measured{Measure: m.Measure, Unit: m.Unit, Value: x.Value, Low: x.Low, High: x.High,
				Why: x.Why}); !known || !cmp.Equal(m, y) {
				t.Errorf("%+v, expected %+v", y, m)
			}
		}
		again, err := json.Marshal(got.Results.Profiling.Summary)
		if err != nil {
			t.Fatal(err)
		}
		var sum report.Summary
		if err := json.Unmarshal(again, &sum); err != nil {
			t.Fatal(err)
		}
		for _, x := range [][2]any{{want.Refusals, sum.Refusals}, {want.Incidents, sum.Incidents},
			{want.Transfers, sum.Transfers}, {want.Outcomes, sum.Outcomes}, {want.Expectations, sum.Expectations},
			{want.Spans, sum.Spans}} {
			if d := cmp.Diff(x[0], x[1]); d != "" {
				t.Errorf("in the summary (-) and the report (+):\n%s", d)
			}
		}
		servers := 0
		for _, c := range got.Results.Observability.Components {
			if c.Replica != "" {
				servers++
			}
			for _, name := range []string{"gpu_utilization", "kv_cache_usage", "running_requests", "waiting_requests",
				"preemptions"} {
				if c.Has[name] == nil {
					t.Errorf("%s %s has no %s", c.Label, c.Replica, name)
				}
			}
		}
		if servers != 4 {
			t.Errorf("%d servers are told by themselves, expected 4", servers)
		}
	})

	t.Run("junit", func(t *testing.T) {
		var got struct {
			Properties []struct {
				Name  string `xml:"name,attr"`
				Value string `xml:"value,attr"`
			} `xml:"properties>property"`
			Cases []struct {
				Name string `xml:"name,attr"`
				Out  string `xml:"system-out"`
			} `xml:"testcase"`
			Out string `xml:"system-out"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = xml.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for _, p := range got.Properties {
			values[p.Name] = p.Value
		}
		for _, m := range want.Measures {
			if v, err := strconv.ParseFloat(values[m.Measure], 64); err != nil || v != m.Value {
				t.Errorf("%s is %q, expected %g", m.Measure, values[m.Measure], m.Value)
			}
		}
		if len(got.Cases) != len(want.Expectations) {
			t.Fatalf("%d test cases, expected %d", len(got.Cases), len(want.Expectations))
		}
		for i, e := range want.Expectations {
			if got.Cases[i].Out != "found "+e.Found {
				t.Errorf("%s: %q, expected what was found: %s", got.Cases[i].Name, got.Cases[i].Out, e.Found)
			}
		}
		if !strings.HasPrefix(got.Out, "summary ") || !strings.Contains(got.Out, "\nincidents  ") ||
			!strings.Contains(got.Out, "\nrefused    ") {
			t.Errorf("the output is no summary:\n%s", got.Out)
		}
	})
}

// An empty trace is reported once, with the expected content.
func TestEmptyTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.csv": "",
		"mine.yaml": "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools: [{name: a}]\nworkload:\n  trace: " +
			"{file: empty.csv}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	o := console.New()
	o.Stderr = &stderr
	if code := run([]string{"sim", filepath.Join(dir, "mine.yaml")}, o); code != int(exit.Input) {
		t.Errorf("exit code %d, expected %d", code, exit.Input)
	}
	if got := stderr.String(); strings.Count(got, "expected") != 1 ||
		!strings.Contains(got, "mine.yaml:5:17: workload.trace.file: empty.csv, read in the azure format: there is "+
			"no request in it; expected one on each line") {
		t.Errorf("%s", got)
	}
}
