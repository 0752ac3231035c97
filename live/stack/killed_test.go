package stack

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// pickerVar makes this test binary an endpoint picker over the model servers
// that it names, in a process of its own that can be killed.
const pickerVar = "WINDTUNNEL_TEST_PICKER"

// servePicker is that process: it prints its address and serves until it dies.
func servePicker(servers []string) {
	var endpoints []*picker.Endpoint
	for _, at := range servers {
		e := cluster.NewEndpoint("default", at, at, nil)
		endpoints = append(endpoints, e)
	}
	s, err := epp.StartStandalone(
		epp.StandaloneOptions{
			PickerOptions: epp.PickerOptions{ConfigName: "round robin",
				Config: []byte("plugins: [{type: round-robin-picker}]")},
			Fill:    func(k *epp.Picking) error { k.SetEndpoints(endpoints); return nil },
			Serving: epp.Serving{Address: anyPort},
			Picking: picking(stream.Config{Hold: true, MetadataBytes: 8})})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}

// The picker's process is killed outright while requests are held: every
// client gets an error and no hang, and the model servers give up.
func TestEPPProcessKilledWhileHolding(t *testing.T) {
	t.Parallel()
	const n = 5
	rec := &recording{}
	prefill := dist.Fixed(100 * machine.Second)
	fleet, err := modelserver.New(modelserver.Options{Recorder: rec, Servers: []modelserver.ServerOptions{
		{Models: []string{"m"}, Prefill: &prefill, Engine: engine.Config{Batching: engine.BatchingIndependent}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Stop(context.Background()) })

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), pickerVar+"="+strings.Join(fleet.Addresses(), " "))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill() // where the test has not come to it
		_ = child.Wait()         // killed, and so an error
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the picker did not start: %v", lines.Err())
	}
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].Replicas, s.Pools[0].Endpoints = 0, fleet.Addresses()
	}), func(o *Options) { o.EPP.Address = lines.Text() })

	answers := make(chan answer, n)
	for range n {
		go func() { answers <- r.post("/v1/chat/completions", chat) }()
	}
	r.until("all are held", func() bool { return rec.count(record.Server, record.PrefillStarted) == n })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range n {
		if a := <-answers; a.err == nil && a.status < 500 {
			t.Errorf("got %d %q", a.status, a.body)
		}
	}
	r.until("nothing in flight", func() bool {
		active, err := r.Gateway.Active(context.Background())
		return err == nil && active.Idle() && fleet.Servers()[0].InFlight() == 0
	})
	if got := rec.count(record.Server, record.Aborted) + rec.count(record.Server, record.Violation); got != n {
		t.Errorf("%d of %d requests were given up by the model server", got, n)
	}
}
