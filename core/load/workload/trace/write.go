package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
)

// WriteOptions choose the format of a written trace.
type WriteOptions struct {
	Format string // Azure, Mooncake, BurstGPT, Bailian or ShareGPT
	// Block is the number of tokens of a hash id in Mooncake's format; Bailian's is always 16.
	Block int
}

// Write writes the requests of a workload, and returns what is lost, a sentence each.
func Write(to io.Writer, c *workload.Config, o WriteOptions) (lost []string, err error) {
	if c.Rate <= 0 && c.Phases == nil && c.Recorded == nil {
		return nil, errors.New("requests are sent when others have ended (concurrency), so only a run determines " +
			"their times; expected a rate")
	}
	w := writer{to: to, options: o, ids: map[uint64]int{}}
	w.head()
	arrivals, turns, unlimited := c.Arrivals(), 0, 0
	sent, headers := 0, 0
	models, classes := map[string]bool{}, map[string]bool{}
	for index := 0; w.err == nil && (c.Requests == 0 || sent < c.Requests); index++ {
		at, more := arrivals.Next()
		if !more {
			break
		}
		v := c.Conversation(index, sent)
		r := v.Request()
		prompt, output, err := lengths(&r)
		if err != nil {
			return nil, err
		}
		models[r.Model], classes[r.Class] = true, true
		if len(r.Header) > 0 {
			headers++
		}
		if turns += v.Turns - 1; output == 0 {
			unlimited++
		}
		sent += v.Turns
		w.request(at, prompt, output)
	}
	w.tail()
	if o.Format == ShareGPT {
		lost = append(lost, "ShareGPT's format has no times: its reader chooses the arrivals")
	}
	if turns > 0 {
		lost = append(lost, fmt.Sprintf(
			"%d later turns of conversations are left out: their prompts contain the answers, and their times depend "+
				"on the answers", turns))
	}
	if len(models) > 1 {
		lost = append(lost, fmt.Sprintf("requests ask for %d models or adapters, which the format does not name",
			len(models)))
	}
	if len(classes) > 1 || !classes[""] {
		lost = append(lost, "classes of traffic and the objectives of good requests are left out")
	}
	if headers > 0 {
		lost = append(lost, fmt.Sprintf("the headers of %d requests are left out", headers))
	}
	if unlimited > 0 {
		lost = append(lost, fmt.Sprintf(
			"%d requests leave the length of the answer to the model server: they are written as 1 token", unlimited))
	}
	return lost, w.err
}

// lengths returns the prompt's text and the requested tokens.
func lengths(r *workload.Request) (prompt string, output int, err error) {
	if r.GRPC {
		return ofCall(r)
	}
	type said struct {
		Content string `json:"content"`
	}
	var x struct {
		Messages []said          `json:"messages"`
		Input    []said          `json:"input"`
		Prompt   json.RawMessage `json:"prompt"`
		Max      int             `json:"max_tokens"`
		MaxOut   int             `json:"max_output_tokens"`
	}
	if err := json.Unmarshal(r.Bytes(), &x); err != nil {
		return "", 0, fmt.Errorf("a request has no prompt of text: %w", err)
	}
	if x.Prompt != nil && json.Unmarshal(x.Prompt, &prompt) != nil {
		return "", 0, errors.New("a request has several prompts; expected one each")
	}
	for _, m := range append(x.Messages, x.Input...) {
		prompt += m.Content
	}
	return prompt, max(x.Max, x.MaxOut), nil
}

// ofCall returns the lengths of a gRPC call.
func ofCall(r *workload.Request) (prompt string, output int, err error) {
	if r.Path == vllmgrpc.EmbedPath {
		return "", 0, errors.New(
			"requests ask for embeddings, which have no answer of tokens; expected api: grpc-generate, or one by HTTP")
	}
	var x vllmgrpc.GenerateRequest
	if err := vllmgrpc.ReadMessage(r.Bytes(), &x); err != nil {
		return "", 0, err
	}
	return x.GetText(), int(x.GetSamplingParams().GetMaxTokens()), nil
}

type writer struct {
	to      io.Writer
	options WriteOptions
	err     error
	ids     map[uint64]int // of hashes, as they appear
	lines   int
}

func (w *writer) print(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.to, format, args...)
	}
}

func (w *writer) head() {
	switch w.options.Format {
	case Azure:
		w.print("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	case BurstGPT:
		w.print("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	case ShareGPT:
		w.print("[")
	}
}

func (w *writer) tail() {
	if w.options.Format == ShareGPT {
		w.print("\n]\n")
	}
}

// json writes a value as JSON.
func (w *writer) json(v any) {
	text, err := json.Marshal(v)
	if w.err == nil {
		w.err = err
	}
	w.print("%s", text)
}

// began is the first day of Azure's traces, since times of that format have a date.
var began = time.Date(2023, time.November, 16, 0, 0, 0, 0, time.UTC)

func (w *writer) request(at machine.Time, prompt string, output int) {
	input := (len(prompt) + bytesPerToken - 1) / bytesPerToken
	input, output = max(1, input), max(1, output)
	switch w.options.Format {
	case Azure:
		w.print("%s,%d,%d\n", began.Add(at.Duration()).Format("2006-01-02 15:04:05.0000000"), input, output)
	case BurstGPT:
		w.print("%.3f,windtunnel,%d,%d,%d,API log\n", at.Seconds(), input, output, input+output)
	case Mooncake:
		w.json(map[string]any{"timestamp": int64(at.Seconds()*1e3 + 0.5), "input_length": input,
			"output_length": output, "hash_ids": w.hashes(prompt, w.options.Block)})
		w.print("\n")
	case Bailian:
		w.json(map[string]any{"chat_id": w.lines, "parent_chat_id": -1, "timestamp": math.Round(at.Seconds()*1e3) / 1e3,
			"input_length": input, "output_length": output,
			"type": "text", "turn": 1, "hash_ids": w.hashes(prompt, BailianBlock)})
		w.print("\n")
	case ShareGPT:
		w.print("%s\n", map[bool]string{true: ","}[w.lines > 0])
		answer := strings.Repeat("and ", output)
		w.json(map[string]any{"id": fmt.Sprint(w.lines), "conversations": []said{{"human", prompt}, {"gpt", answer}}})
	}
	w.lines++
}

// hashes returns a number for the beginning of a prompt up to the end of each block.
func (w *writer) hashes(prompt string, block int) []int {
	out := []int{}
	var h xxhash.Digest
	h.Reset()
	for size := block * bytesPerToken; ; prompt = prompt[size:] {
		n := min(size, len(prompt))
		_, _ = h.WriteString(prompt[:n]) // cannot fail
		sum := h.Sum64()
		if n < size { // a shorter block differs from a whole one
			sum = ^sum
		}
		id, known := w.ids[sum]
		if !known {
			id = len(w.ids)
			w.ids[sum] = id
		}
		if out = append(out, id); len(prompt) <= size {
			return out
		}
	}
}
