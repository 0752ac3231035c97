// Package trace reads traces of requests that somebody published: when each came,
// how long its prompt and its answer were, and in some which beginnings prompts
// had in common. What they say nothing of is made up, and told (Trace.Assumed).
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/workload"
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
)

// Options say how a trace is read.
type Options struct {
	Format string
	// Most is how many requests are wanted; what follows them is not read.
	Most int
	// Speedup makes the trace so many times as fast; 1 is its own pace.
	Speedup float64
	// Block is how many tokens a hash id stands for.
	Block int
	// Stream asks for answers as server-sent events, Chat for chats and not completions.
	Stream, Chat bool
}

// Trace is what was read.
type Trace struct {
	Requests []workload.Recorded
	// Assumed is what the trace did not say, or what of it was left out, a sentence
	// each.
	Assumed []string
}

// Limits of what is read.
const (
	maxLine   = 4 << 20
	maxTokens = 1 << 24
	maxBlocks = 1 << 17
)

// bytesPerToken is what tokens.Packed makes a token of.
const bytesPerToken = 4

// row is one request of any format.
type row struct {
	at            float64 // seconds from any origin
	input, output int
	hashes        []uint64
	left          bool // it is no request to be sent
}

// Read reads a trace. Errors name the line.
func Read(from io.Reader, o Options) (*Trace, error) {
	p := parser{options: o}
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxLine)
	var rows []row
	left, line := 0, 0
	for len(rows) < o.Most && scanner.Scan() {
		line++
		text := strings.TrimPrefix(strings.TrimSpace(scanner.Text()), "\ufeff")
		if text == "" {
			continue
		}
		r, header, err := p.line(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", line, err)
		case header:
		case r.left:
			left++
		default:
			rows = append(rows, r)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes; expected a trace in the %s format", line+1, maxLine, o.Format)
	} else if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("there is no request in it; expected a trace in the %s format", o.Format)
	}
	t := &Trace{Assumed: p.assumed()}
	if !slices.IsSortedFunc(rows, before) {
		slices.SortStableFunc(rows, before)
		t.Assumed = append(t.Assumed, "its lines are not in the order of their times: they are sorted")
	}
	if left > 0 {
		t.Assumed = append(t.Assumed, fmt.Sprintf("%d lines without an answer, which failed, are left out", left))
	}
	for i, r := range rows {
		at := (r.at - rows[0].at) / o.Speedup * 1e9
		if at > 1<<61 {
			return nil, fmt.Errorf("a request comes %.3g s after the first one; expected times within some years", at/1e9)
		}
		prompt := workload.RecordedPrompt{Bytes: r.input * bytesPerToken, Unit: o.Block * bytesPerToken, Heads: r.hashes}
		if r.hashes == nil {
			prompt.Unit, prompt.Heads = max(1, prompt.Bytes), []uint64{unique | uint64(i)}
		}
		t.Requests = append(t.Requests, workload.Recorded{At: machine.Time(at), Chat: o.Chat, Stream: o.Stream, Output: r.output, Prompt: []workload.RecordedPrompt{prompt}})
	}
	return t, nil
}

// unique marks what tells prompts apart that have nothing in common.
const unique = 1 << 63

func before(a, b row) int {
	switch {
	case a.at < b.at:
		return -1
	case a.at > b.at:
		return 1
	}
	return 0
}

type parser struct {
	options Options
	columns map[string]int // of a CSV's header
}

func (p *parser) assumed() []string {
	const alike = "it says nothing of what prompts have in common: all are different, and nothing of them is found in caches"
	switch p.options.Format {
	case Azure:
		return []string{alike}
	case BurstGPT:
		return []string{alike, "its requests to several models are sent to one"}
	}
	return []string{fmt.Sprintf("a hash id stands for %d tokens, and for all that is before them", p.options.Block),
		"answers are not known by content: no later prompt has one of them in it but as its own hash ids say"}
}

func (p *parser) line(text string) (r row, header bool, err error) {
	if p.options.Format == Mooncake {
		r, err = p.mooncake(text)
	} else if p.columns == nil {
		return r, true, p.header(text)
	} else {
		r, err = p.csv(text)
	}
	if err == nil && (r.input < 1 || r.input > maxTokens || r.output < 0 || r.output > maxTokens) {
		err = fmt.Errorf("a prompt of %d tokens and an answer of %d; expected 1 to %d, and up to %d", r.input, r.output, maxTokens, maxTokens)
	}
	if r.output == 0 { // as both kinds of CSV tell a failure
		r.left = true
	}
	return r, false, err
}

// names are the columns that a CSV has: time, prompt, answer.
func (p *parser) names() [3]string {
	if p.options.Format == BurstGPT {
		return [3]string{"Timestamp", "Request tokens", "Response tokens"}
	}
	return [3]string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
}

func (p *parser) header(text string) error {
	p.columns = map[string]int{}
	for i, name := range strings.Split(text, ",") {
		p.columns[strings.TrimSpace(name)] = i
	}
	names := p.names()
	for _, name := range names {
		if _, ok := p.columns[name]; !ok {
			return fmt.Errorf("found %.200q; expected a header with %s, as the %s format has", text, strings.Join(names[:], ", "), p.options.Format)
		}
	}
	return nil
}

func (p *parser) csv(text string) (r row, err error) {
	fields, names := strings.Split(text, ","), p.names()
	field := func(i int) string {
		if at := p.columns[names[i]]; at < len(fields) {
			return strings.TrimSpace(fields[at])
		}
		return ""
	}
	if p.options.Format == Azure {
		r.at, err = wallClock(field(0))
	} else {
		r.at, err = seconds(field(0))
	}
	for i, to := range []*int{&r.input, &r.output} {
		if err == nil {
			if *to, err = strconv.Atoi(field(i + 1)); err != nil {
				err = fmt.Errorf("%s: found %.80q; expected a whole number of tokens", names[i+1], field(i+1))
			}
		}
	}
	return r, err
}

func seconds(text string) (float64, error) {
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
		return 0, fmt.Errorf("time: found %.80q; expected seconds", text)
	}
	return at, nil
}

// wallClock reads 2023-11-16 18:15:46.6805900, with or without a fraction or zone.
func wallClock(text string) (float64, error) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return float64(at.Unix()) + float64(at.Nanosecond())/1e9, nil
		}
	}
	return 0, fmt.Errorf("TIMESTAMP: found %.80q; expected such as 2023-11-16 18:15:46.6805900", text)
}

func (p *parser) mooncake(text string) (row, error) {
	var x struct {
		Timestamp *float64 `json:"timestamp"` // ms
		Input     int      `json:"input_length"`
		Output    int      `json:"output_length"`
		Hashes    []uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		return row{}, fmt.Errorf("%w; expected a JSON object with timestamp, input_length, output_length and hash_ids", err)
	}
	if x.Timestamp == nil {
		return row{}, errors.New("timestamp is missing; expected milliseconds")
	}
	if blocks := (x.Input + p.options.Block - 1) / p.options.Block; len(x.Hashes) != blocks || blocks > maxBlocks {
		return row{}, fmt.Errorf("%d hash ids for %d tokens; expected one for each %d tokens begun (blockSize)", len(x.Hashes), x.Input, p.options.Block)
	}
	return row{at: *x.Timestamp / 1e3, input: x.Input, output: x.Output, hashes: x.Hashes}, nil
}
