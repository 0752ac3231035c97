package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The scripts in testdata/scripts drive one engine. A command runs at at=TIME (without it: at once), and its output is
// every effect since the last command.
//
//	engine [option=value]...     a new engine at time 0
//	submit ID [option=value]...  prompt=, max=, stop=, hold, kv-hold, remote=FROM/HANDLE/TOKENS, every, ...
//	abort ID / resume ID         messages
//	arrived ID / failed ID / released HANDLE
//	control OP [adapter=N]
//	run [until=TIME]             let time pass, by default until nothing is pending
//	stats [name]...              counters
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.play(t, d)
		})
	})
}

type script struct {
	e  *Engine
	fx Effects
}

func (s *script) play(t *testing.T, d *datadriven.TestData) string {
	s.fx.Reset()
	if d.Cmd == "engine" {
		cfg := scriptConfig(t, d)
		e, err := New(cfg)
		if err != nil {
			return err.Error() + "\n"
		}
		s.e = e
		return ""
	}
	at := s.e.Now()
	if v, ok := arg(d, "at"); ok {
		at = span(t, d, v)
	}
	switch d.Cmd {
	case "submit":
		s.e.Input(at, scriptSubmit(t, d), &s.fx)
	case "abort":
		s.e.Input(at, Abort{RequestID(id(t, d))}, &s.fx)
	case "resume":
		s.e.Input(at, Resume{RequestID(id(t, d))}, &s.fx)
	case "arrived":
		s.e.Input(at, KVArrived{RequestID(id(t, d))}, &s.fx)
	case "failed":
		s.e.Input(at, KVFailed{RequestID(id(t, d))}, &s.fx)
	case "released":
		s.e.Input(at, KVReleased{uint64(id(t, d))}, &s.fx)
	case "control":
		m := Control{}
		for i, n := range opNames {
			if n == strings.ReplaceAll(d.CmdArgs[0].Key, "-", " ") {
				m.Op = Op(i)
			}
		}
		m.Adapter = AdapterID(integer(t, d, "adapter"))
		s.e.Input(at, m, &s.fx)
	case "run":
		until := machine.Never
		if v, ok := arg(d, "until"); ok {
			until = span(t, d, v)
		}
		for {
			next, ok := s.e.Next()
			if !ok || next > until {
				break
			}
			s.e.Advance(next, &s.fx)
		}
		if until != machine.Never {
			s.e.Advance(until, &s.fx)
		}
	case "stats":
		var b strings.Builder
		v := reflect.ValueOf(s.e.Stats())
		for _, a := range d.CmdArgs {
			fmt.Fprintf(&b, "%s=%v\n", a.Key, v.FieldByName(a.Key))
		}
		fmt.Fprintf(&b, "blocks used=%d\n", s.e.KVBlocksUsed())
		if len(s.e.loras.known) > 0 {
			fmt.Fprintf(&b, "adapters running=%v waiting=%v slots=%v host=%v\n", s.e.runningAdapters(),
				s.e.waitingAdapters(),
				s.e.AdaptersInMemory(TierGPU, nil), s.e.AdaptersInMemory(TierCPU, nil))
		}
		return b.String()
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	var b strings.Builder
	for i := range s.fx.List {
		f := &s.fx.List[i]
		b.WriteString(f.String())
		for _, h := range s.fx.BlockHashes(f) {
			fmt.Fprintf(&b, " %x", h)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func scriptConfig(t *testing.T, d *datadriven.TestData) Config {
	var c Config
	c.Batching = BatchingContinuous
	if v, ok := arg(d, "batching"); ok {
		b, err := ParseBatching(v)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		c.Batching = b
	}
	if v, ok := arg(d, "kv-load-failure"); ok {
		p, err := ParseKVLoadFailure(v)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		c.KVLoadFailure = p
	}
	// A step takes step= and per-token= for each prompt token in it.
	timer := bentTimer{base: ToFixed(10 * machine.Millisecond), knot: NoKnot}
	if v, ok := arg(d, "step"); ok {
		timer.base = ToFixed(span(t, d, v))
	}
	if v, ok := arg(d, "per-token"); ok {
		timer.perPrefill = ToFixed(span(t, d, v))
	}
	c.Timer = timer
	if v, ok := arg(d, "policy"); ok {
		p, err := ParsePolicy(v)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		c.Policy = p
	}
	c.KVEvents, c.ReportSteps = d.HasArg("kv-events"), d.HasArg("report-steps")
	c.DisableChunkedPrefill, c.DisablePrefixCaching = d.HasArg("no-chunked-prefill"), d.HasArg("no-prefix-caching")
	for i := range integer(t, d, "adapters") {
		c.Adapters = append(c.Adapters, AdapterID(i+1))
	}
	for _, f := range []struct {
		name string
		v    *machine.Time
	}{{"prefill", &c.Prefill.Low}, {"token", &c.TokenTime.Low}, {"hold-timeout", &c.KVHoldTimeout},
		{"lora-load", &c.LoRALoadTime}, {"lora-activate", &c.LoRAActivateTime}} {
		if v, ok := arg(d, f.name); ok {
			*f.v = span(t, d, v)
		}
	}
	for _, f := range []struct {
		name string
		v    *int
	}{
		{"max-num-seqs", &c.MaxNumSeqs}, {"max-num-batched-tokens", &c.MaxNumBatchedTokens},
		{"max-model-len", &c.MaxModelLen},
		{"block-size", &c.BlockSize}, {"blocks", &c.NumGPUBlocks},
		{"long-prefill-token-threshold", &c.LongPrefillTokenThreshold},
		{"max-loras", &c.MaxLoRAs}, {"max-cpu-loras", &c.MaxCPULoRAs}, {"cpu-blocks", &c.NumCPUBlocks},
		{"max-num-partial-prefills", &c.MaxNumPartialPrefills},
	} {
		*f.v = integer(t, d, f.name)
	}
	return c
}

func scriptSubmit(t *testing.T, d *datadriven.TestData) *Submit {
	m := &Submit{
		ID:           RequestID(id(t, d)),
		PromptTokens: 1,
		MaxTokens:    integer(t, d, "max"),
		StopAfter:    integer(t, d, "stop"),
		MinTokens:    integer(t, d, "min"),
		IgnoreEOS:    d.HasArg("ignore-eos"),
		Priority:     int32(integer(t, d, "priority")),
		Adapter:      AdapterID(integer(t, d, "adapter")),

		HoldAfterFirst: d.HasArg("hold"),
		HoldKV:         d.HasArg("kv-hold"),
	}
	if d.HasArg("prompt") {
		m.PromptTokens = integer(t, d, "prompt")
	}
	if d.HasArg("every") {
		m.Interest = EveryToken
	}
	if v, ok := arg(d, "prefill"); ok {
		m.PrefillTime = span(t, d, v)
	}
	if v, ok := arg(d, "token"); ok {
		m.TokenTime = span(t, d, v)
	}
	if v, ok := arg(d, "remote"); ok {
		if _, err := fmt.Sscanf(v, "%d/%d/%d", &m.Remote.From, &m.Remote.Handle, &m.Remote.Tokens); err != nil {
			d.Fatalf(t, "remote: %v", err)
		}
	}
	if v, ok := arg(d, "hashes"); ok {
		for _, h := range strings.Split(v, "/") {
			var x uint64
			if _, err := fmt.Sscanf(h, "%x", &x); err != nil {
				d.Fatalf(t, "hashes: %v", err)
			}
			m.Hashes = append(m.Hashes, x)
		}
	}
	return m
}

func arg(d *datadriven.TestData, name string) (string, bool) {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) == 1 {
			return a.Vals[0], true
		}
	}
	return "", false
}

func integer(t *testing.T, d *datadriven.TestData, name string) int {
	v, ok := arg(d, name)
	if !ok {
		return 0
	}
	var n int
	if _, err := fmt.Sscan(v, &n); err != nil {
		d.Fatalf(t, "%s: %v", name, err)
	}
	return n
}

func id(t *testing.T, d *datadriven.TestData) int {
	var n int
	if len(d.CmdArgs) == 0 {
		d.Fatalf(t, "%s needs a number", d.Cmd)
	}
	if _, err := fmt.Sscan(d.CmdArgs[0].Key, &n); err != nil {
		d.Fatalf(t, "%s: %v", d.Cmd, err)
	}
	return n
}

func span(t *testing.T, d *datadriven.TestData, v string) machine.Time {
	x, err := time.ParseDuration(v)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return machine.FromDuration(x)
}

// runningAdapters are those of requests in the batch, and waitingAdapters those of
// requests that wait and do not run, both in order of their numbers.
func (e *Engine) runningAdapters() (out []AdapterID) {
	for a := range e.loras.running {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}

func (e *Engine) waitingAdapters() (out []AdapterID) {
	for i := range e.queue.len() {
		a := e.reqs[e.queue.at(i)].adapter
		if a != 0 && e.loras.running[a] == 0 && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return out
}
