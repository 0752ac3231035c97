package dropin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/internal/files"
)

// Limits of a dataset.
const (
	maxDatasetFile = 1 << 30
	maxAnswers     = 1_000_000
	maxAnswerBytes = 1 << 20
)

// ReadDataset reads answers from a file: ShareGPT's JSON (the assistant's messages of each conversation), JSON lines (a
// string, or an object with response, completion, answer, output, text or content), plain lines, or the table of an
// SQLite database in llm-d-inference-sim's format (llmd if table is empty).
func ReadDataset(path, table string) ([]string, error) {
	raw, err := files.Read(path, maxDatasetFile)
	if err != nil {
		return nil, err
	}
	answers, err := parseDataset(raw, table)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return answers, nil
}

func parseDataset(raw []byte, table string) ([]string, error) {
	var out []string
	add := func(text string) error {
		switch {
		case text == "":
			return nil
		case len(text) > maxAnswerBytes:
			return fmt.Errorf("an answer has more than %d bytes", maxAnswerBytes)
		case len(out) == maxAnswers:
			return fmt.Errorf("there are more than %d answers", maxAnswers)
		}
		out = append(out, text)
		return nil
	}
	switch {
	case bytes.HasPrefix(raw, []byte(sqliteMagic)):
		if err := sqliteAnswers(raw, table, add); err != nil {
			return nil, err
		}
	case bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")):
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		for _, item := range list {
			for _, text := range answersOf(item) {
				if err := add(text); err != nil {
					return nil, err
				}
			}
		}
	default:
		lines := bufio.NewScanner(bytes.NewReader(raw))
		lines.Buffer(nil, 2*maxAnswerBytes)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			texts := []string{line}
			if strings.HasPrefix(line, "{") || strings.HasPrefix(line, "\"") {
				texts = answersOf([]byte(line))
			}
			for _, text := range texts {
				if err := add(text); err != nil {
					return nil, err
				}
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no answers in it; expected ShareGPT's JSON, JSON lines with response or text, or " +
			"plain lines")
	}
	return out, nil
}

// answersOf returns the answers in one item of a dataset.
func answersOf(raw []byte) []string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []string{text}
	}
	var o struct {
		Response, Completion, Answer, Output, Text, Content string
		Conversations                                       []struct{ From, Value string }
		Messages                                            []struct{ Role, Content string }
	}
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	var out []string
	for _, s := range []string{o.Response, o.Completion, o.Answer, o.Output, o.Text, o.Content} {
		if s != "" {
			out = append(out, s)
			break
		}
	}
	for _, c := range o.Conversations {
		if c.From == "gpt" || c.From == "assistant" {
			out = append(out, c.Value)
		}
	}
	for _, m := range o.Messages {
		if m.Role == "assistant" {
			out = append(out, m.Content)
		}
	}
	return out
}
