package program

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// calibrate measures a model server over sockets, and a scenario accepts the file. core/modelserver/latency/calibrate
// tests the table's accuracy on one clock. Ctrl-C prints the results so far.
func TestCalibrate(t *testing.T) {
	t.Parallel()
	// So slow that prompts take longer than shorter ones also where a busy machine is late.
	timer, err := latency.Coefficients{Step: "2ms", PrefillToken: "5ms"}.PerToken()
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := modelserver.New(
		modelserver.Options{Servers: []modelserver.ServerOptions{
			{Models: []string{"m"}, PromptTokensDetails: true, Engine: engine.Config{Timer: timer}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Stop(context.Background()) })
	file := filepath.Join(t.TempDir(), "times.csv")
	command := []string{"calibrate", "--endpoint", "http://" + fleet.Addresses()[0], "--file", file,
		"--max-prompt", "64",
		"--max-batch", "2", "--contexts", "32,64", "--repeats", "1", "--traffic", "4"}
	play := func(ctx context.Context, stderr *watched) (int, string) {
		var stdout bytes.Buffer
		o := console.New()
		o.Stdout, o.Stderr, o.Terminal, o.Columns = &stdout, stderr, false, 0
		o.Context = func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
		return run(command, o), stdout.String()
	}
	// calibrate refuses times that a busy machine has spoilt and asks for an idle server; here that means: again.
	stderr := &watched{}
	code, out := play(t.Context(), stderr)
	for code == int(exit.Environment) && strings.Contains(stderr.String(), "was the server idle?") {
		t.Log(stderr.String())
		stderr = &watched{}
		code, out = play(t.Context(), stderr)
	}
	text, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, &stderr.Buffer)
	}
	all, err := latency.ParseCSV(file, string(text))
	alone := 0
	for _, p := range all[0].Points {
		if p.Prompt == 0 {
			// a busy machine may have a prompt miss the batch that it should join, and batches of two not be full
			alone++
		}
	}
	if err != nil || len(all) != 1 || alone < 3+2 || all[0].Model != "m" {
		t.Errorf("%+v, %v\n%s", all, err, text)
	}
	for _, want := range []string{"measuring m at http://", "Poisson at 80%, TTFT p90", "Poisson traffic off by",
		"prompt", "at once", "A prompt of 32 tokens took ", "16 of its tokens were cached", "written to "} {
		if !strings.Contains(out, want) {
			t.Errorf("expected %q in\n%s", want, out)
		}
	}
	if _, err := scenario.Parse(filepath.Join(filepath.Dir(file), "mine.yaml"),
		[]byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n  - name: a\n    modelServer: {batching: "+
			"continuous, stepTimes: times.csv}\n")); err != nil {
		t.Error(err)
	}
	// It does not overwrite a file.
	stderr = &watched{}
	if code, _ := play(t.Context(), stderr); code != 2 || !strings.Contains(stderr.String(), "exists already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// After an interruption it prints the results so far.
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	command = append(command, "--force")
	stderr = &watched{until: "1 at once of 32", then: interrupt}
	if code, out := play(ctx, stderr); code != 130 || !strings.Contains(out, "interrupted: too little was measured") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}

// watched is standard error that calls a function once it contains a text.
type watched struct {
	bytes.Buffer
	until string
	then  func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if w.then != nil && strings.Contains(w.String(), w.until) {
		w.then()
		w.then = nil
	}
	return n, err
}
