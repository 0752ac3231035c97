package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/load/workload"
)

// said is one message of a conversation.
type said struct {
	From  string `json:"from"`
	Value string `json:"value"`
}

// asks reports whether a message asks for an answer; answers reports whether it is one.
func (s *said) asks() bool { return s.From == "human" || s.From == "user" || s.From == "system" }
func (s *said) answers() bool {
	return s.From == "gpt" || s.From == "assistant" || s.From == "chatgpt" || s.From == "bing" || s.From == "bard"
}

// conversations reads ShareGPT's array: each answer is one request, with the messages before it. Lengths are the
// texts'. Words are invented.
func conversations(from io.Reader, o *Options) (*Trace, error) {
	if !o.Chat {
		return nil, errors.New("these are conversations; expected api: chat")
	}
	in := json.NewDecoder(from)
	if open, err := in.Token(); err != nil {
		return nil, fmt.Errorf("%w; expected a JSON array of conversations, as the %s format has", err, ShareGPT)
	} else if open != json.Delim('[') {
		return nil, fmt.Errorf("found %v; expected a JSON array of conversations, as the %s format has", open, ShareGPT)
	}
	t := &Trace{Untimed: true}
	odd := 0
	for number := 0; len(t.Requests) < o.Most && in.More(); number++ {
		var c struct {
			Conversations []said `json:"conversations"`
		}
		if err := in.Decode(&c); err != nil {
			return nil, fmt.Errorf("conversation %d: %w; expected an object with conversations, a list of from and "+
				"value", number, err)
		}
		var prompt []workload.RecordedPrompt
		total, asked := 0, false
		for i := range c.Conversations {
			m := &c.Conversations[i]
			if total += len(m.Value); total > maxTokens*bytesPerToken {
				return nil, fmt.Errorf("conversation %d: more than %d characters; expected fewer", number,
					maxTokens*bytesPerToken)
			}
			switch {
			case m.Value == "":
				continue
			case m.answers() && asked && len(t.Requests) < o.Most:
				t.Requests = append(t.Requests,
					workload.Recorded{Chat: true, Stream: o.Stream, Prompt: prompt[:len(prompt):len(prompt)],
						Output: (len(m.Value) + bytesPerToken - 1) / bytesPerToken})
			case !m.asks() && !m.answers():
				odd++
			}
			asked = m.asks()
			prompt = append(prompt, workload.RecordedPrompt{Bytes: len(m.Value), Unit: len(m.Value),
				Heads: []uint64{xxhash.Sum64String(m.Value)}})
		}
	}
	if len(t.Requests) == 0 {
		return nil, fmt.Errorf("there is no answer in it; expected conversations of human and gpt, as the %s format "+
			"has", ShareGPT)
	}
	t.Assumed = []string{"it has no times: the workload determines the arrivals, and requests of a conversation do " +
		"not wait for the previous answer",
		"words are invented, with the lengths of the trace's, and equal where the trace's are equal; a token of an " +
			"answer is four characters",
		"every message is the user's"}
	if odd > 0 {
		t.Assumed = append(t.Assumed, fmt.Sprintf("%d messages of neither human nor gpt count as the user's", odd))
	}
	return t, nil
}
