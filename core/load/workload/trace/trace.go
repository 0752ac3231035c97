// Package trace reads published traces of requests: the time of each, the lengths of its prompt and its answer, and in
// some formats the shared beginnings of prompts. Trace.Assumed lists what a trace leaves open. Write writes traces.
// Begin to read at Read.
package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
)

// The formats.
const (
	// Azure is the CSV of the Azure LLM inference traces of 2023 and 2024
	// (github.com/Azure/AzurePublicDataset).
	Azure = "azure"
	// Mooncake is JSON lines with hash ids (github.com/kvcache-ai/Mooncake,
	// FAST25-release/traces).
	Mooncake = "mooncake"
	// BurstGPT is the CSV of github.com/HPMLL/BurstGPT.
	BurstGPT = "burstgpt"
	// Bailian is the JSON lines of the Qwen-Bailian usage traces
	// (github.com/alibaba-edu/qwen-bailian-usagetraces-anon).
	Bailian = "bailian"
	// ShareGPT is a JSON array of conversations, as vLLM's benchmark reads it. It
	// has no times.
	ShareGPT = "sharegpt"
	// ServeGen is a directory of clients' rates and lengths, from which requests are
	// drawn (github.com/alibaba/ServeGen, data).
	ServeGen = "servegen"
	// OTLP is OpenTelemetry's spans, in JSON or protobuf, with the attributes for
	// generative AI (opentelemetry.io/docs/specs/semconv/gen-ai).
	OTLP = "otlp"
	// Envoy is Envoy's access log with json_format
	// (envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage).
	Envoy = "envoy"
)

// MooncakeBlock is the default number of tokens of a hash id in Mooncake's traces.
const MooncakeBlock = 512

// BailianBlock is the number of tokens of a hash id in Bailian's traces.
const BailianBlock = 16

// Formats returns the names of all formats.
func Formats() []string {
	return []string{Azure, Mooncake, BurstGPT, Bailian, ShareGPT, ServeGen, OTLP, Envoy}
}

// format reads the lines of a format.
type format interface {
	// line reads a line of the file; header reports that it is not a request.
	line(text string) (r row, header bool, err error)
	// assumed returns what this format leaves open, a sentence each.
	assumed() []string
}

// of returns the reader of a format of lines.
func (o *Options) of() (format, error) {
	switch o.Format {
	case Azure:
		return &csv{names: [3]string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, time: wallClock, format: Azure},
			nil
	case BurstGPT:
		return &csv{names: [3]string{"Timestamp", "Request tokens", "Response tokens"}, time: seconds, format: BurstGPT,
			also: []string{"its requests to several models are sent to one"}}, nil
	case Mooncake:
		return &hashed{block: cmp.Or(o.Block, MooncakeBlock), unit: 1e-3, beside: map[string]bool{}}, nil
	case Bailian:
		return &hashed{block: cmp.Or(o.Block, BailianBlock), unit: 1, chained: true, beside: map[string]bool{}}, nil
	case Envoy:
		return newEnvoy(o.LogFormat)
	}
	return nil, fmt.Errorf("no format %q; expected one of %s", o.Format, strings.Join(Formats(), ", "))
}

// Options configure how a trace is read.
type Options struct {
	Format string
	// Most is the largest number of requests to read.
	Most int
	// Speedup is the factor by which the trace is faster; 1 is its own speed.
	Speedup float64
	// Block is the number of tokens of a hash id; 0 is the format's.
	Block int
	// Spread delays every request by a random time up to this, in seconds, for traces whose times are rounded down.
	Spread float64
	// From and For select requests, in seconds: from From after the first line's time (ServeGen's beginning), for For;
	// 0 is no limit.
	From, For float64
	// LogFormat is the json_format of Envoy's access log, a JSON object; "" recognises fields by their names.
	LogFormat string
	// Rate is the mean rate of all ServeGen's clients together, in requests per second; 0 is their own.
	Rate float64
	// Seed is the seed of all draws.
	Seed uint64
	// Stream asks for server-sent events, Chat for chats instead of completions.
	Stream, Chat bool
}

// Trace holds the requests of a trace.
type Trace struct {
	Requests []workload.Recorded
	// Untimed: the trace has no times, and the requests' times are 0.
	Untimed bool
	// Assumed lists what the trace leaves open, and its parts that are left out, a sentence each.
	Assumed []string
}

// Limits of traces.
const (
	maxLine   = 4 << 20
	maxTokens = 1 << 24
	maxBlocks = 1 << 17
)

// bytesPerToken is the size of a token of tokens.Packed.
const bytesPerToken = 4

// allDifferent is assumed of a trace whose format has neither prompts nor their hashes.
const allDifferent = "it does not say which prompts share beginnings: all are different, and caches find nothing of " +
	"them"

// askedOf lists what is assumed of a trace that names models and servers.
func askedOf(models, servers map[string]bool) (assumed []string) {
	if len(models) > 1 {
		assumed = append(assumed, fmt.Sprintf("its requests to %d models are sent to one", len(models)))
	}
	if len(servers) > 0 {
		assumed = append(assumed, fmt.Sprintf("%d servers answered them; the scenario's pools say how many answer here",
			len(servers)))
	}
	return assumed
}

// row is a request of any format.
type row struct {
	at            float64 // seconds from any origin
	input, output int
	hashes        []uint64
	block         int // tokens of a hash
}

// Read reads a trace. Errors name the line.
func Read(from io.Reader, o Options) (*Trace, error) {
	if o.Format == ShareGPT {
		return conversations(from, &o)
	}
	if o.Format == OTLP {
		rows, assumed, err := spans(from, &o)
		if err != nil {
			return nil, err
		}
		x := selection{o: &o}
		for _, r := range rows {
			x.add(r)
		}
		return x.trace(assumed)
	}
	f, err := o.of()
	if err != nil {
		return nil, err
	}
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxLine)
	x, line := selection{o: &o}, 0
	for len(x.rows) < o.Most && scanner.Scan() {
		line++
		text := strings.TrimPrefix(strings.TrimSpace(scanner.Text()), "\ufeff")
		if text == "" {
			continue
		}
		r, header, err := f.line(text)
		if err == nil && !header {
			err = r.check()
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", line, err)
		case !header:
			x.add(r)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes; expected a request on each line", line+1, maxLine)
	} else if err != nil {
		return nil, err
	}
	return x.trace(f.assumed())
}

// selection is the requests of a trace that are played.
type selection struct {
	o             *Options
	rows          []row
	left, outside int // requests that failed, and those outside the selected time
	begun         bool
	origin        float64
}

func (x *selection) add(r row) {
	if !x.begun {
		x.begun, x.origin = true, r.at
	}
	switch since := r.at - x.origin; {
	case x.o.From > 0 && since < x.o.From || x.o.For > 0 && since >= x.o.From+x.o.For:
		x.outside++
	case r.output == 0: // a failed request in all formats that have them
		x.left++
	case len(x.rows) < x.o.Most:
		x.rows = append(x.rows, r)
	}
}

// trace returns the requests in the order of their times.
func (x *selection) trace(assumed []string) (*Trace, error) {
	o, rows := x.o, x.rows
	if len(rows) == 0 && x.outside > 0 {
		return nil, fmt.Errorf("none of its %d requests is in the selected time from %g s on; expected a time with "+
			"requests", x.outside, o.From)
	}
	if len(rows) == 0 {
		return nil, errors.New("there is no request in it; expected one on each line")
	}
	t := &Trace{Assumed: assumed}
	if !slices.IsSortedFunc(rows, before) {
		machine.SortStableFunc(rows, before)
		t.Assumed = append(t.Assumed, "its lines are not in the order of their times, and are sorted")
	}
	if x.left > 0 {
		t.Assumed = append(t.Assumed, fmt.Sprintf("%d requests without an answer, which failed, are left out", x.left))
	}
	if o.Spread > 0 {
		for i := range rows {
			d := machine.NewDraw(o.Seed, "client", "spread", uint64(i))
			rows[i].at += o.Spread * d.Float64()
		}
		machine.SortStableFunc(rows, before)
		t.Assumed = append(t.Assumed, fmt.Sprintf("every request comes up to %g s after its time, evenly", o.Spread))
	}
	t.Requests = make([]workload.Recorded, len(rows))
	prompts := make([]workload.RecordedPrompt, len(rows))
	for i, r := range rows {
		at := (r.at - rows[0].at) / o.Speedup * 1e9
		if at > 1<<61 {
			return nil, fmt.Errorf("a request comes %.3g s after the first one; expected times within some years",
				at/1e9)
		}
		prompts[i] = r.prompt(i)
		t.Requests[i] = r.recorded(o, machine.Time(at), prompts[i:i+1:i+1])
	}
	return t, nil
}

// prompt returns the prompt of the request with this number.
func (r *row) prompt(number int) workload.RecordedPrompt {
	p := workload.RecordedPrompt{Bytes: r.input * bytesPerToken, Unit: r.block * bytesPerToken, Heads: r.hashes}
	if r.hashes == nil {
		p.Unit, p.Heads = max(1, p.Bytes), []uint64{unique | uint64(number)}
	}
	return p
}

// recorded returns the request.
func (r *row) recorded(o *Options, at machine.Time, prompt []workload.RecordedPrompt) workload.Recorded {
	return workload.Recorded{At: at, Chat: o.Chat, Stream: o.Stream, Output: r.output, Prompt: prompt}
}

// unique marks the heads of prompts that share nothing.
const unique = 1 << 63

func before(a, b row) int { return cmp.Compare(a.at, b.at) }

// check returns an error unless its lengths are within the limits.
func (r *row) check() error {
	if r.input < 1 || r.input > maxTokens || r.output < 0 || r.output > maxTokens {
		return fmt.Errorf("a prompt of %d tokens and an answer of %d; expected 1 to %d, and up to %d", r.input,
			r.output, maxTokens, maxTokens)
	}
	return nil
}
