package kvcodec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
)

// jsonEvent is document 003's KVEvent. The fields from parent_block_hash on
// are not in the document: an engine that sends them lets prompts be scored by
// their tokens and not only by block_hash. Unknown fields are passed over.
type jsonEvent struct {
	EventType      string   `json:"event_type"`
	PodID          string   `json:"pod_id"`
	BlockHash      string   `json:"block_hash,omitempty"`
	BlockTokens    []string `json:"block_tokens,omitempty"`
	NumTokens      int      `json:"num_tokens,omitempty"`
	Timestamp      string   `json:"timestamp,omitempty"`
	LayerID        int      `json:"layer_id"`
	CacheSizeBytes int64    `json:"cache_size_bytes,omitempty"`

	ParentBlockHash string   `json:"parent_block_hash,omitempty"`
	TokenIDs        []uint32 `json:"token_ids,omitempty"`
	Medium          *string  `json:"medium,omitempty"`
	Model           string   `json:"model,omitempty"`
	LoRAName        string   `json:"lora_name,omitempty"`
	NumGPUBlocks    int      `json:"num_gpu_blocks,omitempty"`
}

// IsJSON reports whether a payload is document 003's JSON: no msgpack batch
// begins with a brace, a bracket or white space.
func IsJSON(payload []byte) bool {
	p := bytes.TrimLeft(payload, " \t\r\n")
	return len(p) > 0 && (p[0] == '{' || p[0] == '[')
}

// DecodeJSON reads document 003's events: one object, an array of objects, or
// objects one after another (one per line). An error names the event and the
// field, and no event of the message counts.
//
// An event without token_ids is known by its name only (ByName): prompts find
// it when they are asked for with prompt_blocks, never by their text.
func DecodeJSON(payload []byte, limits Limits) (kv.Batch, error) {
	lim := limits.orDefaults()
	b := kv.Batch{DataParallelRank: -1}
	if len(payload) > lim.PayloadBytes {
		return b, fmt.Errorf("KV event message has %d bytes, the limit is %d", len(payload), lim.PayloadBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	inArray := false
	if p := bytes.TrimLeft(payload, " \t\r\n"); len(p) > 0 && p[0] == '[' {
		inArray = true
		if _, err := dec.Token(); err != nil {
			return b, fmt.Errorf("KV event message: %w", err)
		}
	}
	for !inArray || dec.More() {
		if len(b.Events) >= lim.Events {
			return b, fmt.Errorf("KV event message has more than %d events, the limit", lim.Events)
		}
		var j jsonEvent
		if err := dec.Decode(&j); err == io.EOF {
			break
		} else if err != nil {
			return b, fmt.Errorf("KV event message: event %d: %w", len(b.Events), err)
		}
		e, err := j.event(lim)
		if err != nil {
			return b, fmt.Errorf("KV event message: event %d: %w", len(b.Events), err)
		}
		b.At = max(b.At, e.At)
		b.Events = append(b.Events, e)
	}
	if inArray {
		if _, err := dec.Token(); err != nil {
			return b, fmt.Errorf("KV event message: after event %d: %w", len(b.Events), err)
		}
		if _, err := dec.Token(); err != io.EOF {
			return b, errors.New("KV event message: something follows the array of events")
		}
	}
	if len(b.Events) == 0 {
		return b, errors.New("KV event message: no event in it, expected an object with event_type")
	}
	return b, nil
}

func (j *jsonEvent) event(lim Limits) (kv.Event, error) {
	e := kv.Event{Group: kv.NoGroup, Medium: kv.MediumGPU, Pod: j.PodID, Model: j.Model, LoRAName: j.LoRAName,
		LayerID: j.LayerID, BlockBytes: j.CacheSizeBytes, BlockTokens: j.NumTokens, Tokens: j.TokenIDs,
		Name: j.BlockHash, Capacity: j.NumGPUBlocks, Kind: kv.DocumentKind(j.EventType)}
	for _, f := range []struct{ name, text string }{{"pod_id", j.PodID}, {"model", j.Model},
		{"lora_name", j.LoRAName}} {
		if err := kv.CheckName(f.name, f.text); err != nil {
			return e, err
		}
	}
	for _, f := range []struct{ name, text string }{{"event_type", j.EventType}, {"block_hash", j.BlockHash},
		{"parent_block_hash", j.ParentBlockHash}} {
		if len(f.text) > lim.TextBytes {
			return e, fmt.Errorf("%s has %d bytes, the limit is %d", f.name, len(f.text), lim.TextBytes)
		}
	}
	switch {
	case e.Kind == 0:
		return e, fmt.Errorf("event_type is %.40q, expected BLOCK_CREATED, BLOCK_EVICTED, BLOCK_UPDATED, "+
			"ALL_BLOCKS_CLEARED or HEARTBEAT", j.EventType)
	case j.NumTokens < 0 || j.NumTokens > lim.Tokens:
		return e, fmt.Errorf("num_tokens is %d, expected 0 to %d", j.NumTokens, lim.Tokens)
	case len(j.TokenIDs) > lim.Tokens:
		return e, fmt.Errorf("token_ids has %d elements, the limit is %d", len(j.TokenIDs), lim.Tokens)
	case j.CacheSizeBytes < 0:
		return e, fmt.Errorf("cache_size_bytes is %d, expected 0 or more", j.CacheSizeBytes)
	case j.NumGPUBlocks < 0 || j.NumGPUBlocks > math.MaxInt32:
		return e, fmt.Errorf("num_gpu_blocks is %d, expected 0 to %d", j.NumGPUBlocks, math.MaxInt32)
	}
	if j.Timestamp != "" {
		at, err := time.Parse(time.RFC3339Nano, j.Timestamp)
		if err != nil {
			return e, fmt.Errorf("timestamp %.40q is not RFC 3339 (like 2025-10-26T10:30:45Z)", j.Timestamp)
		}
		e.At = float64(at.UnixMilli()) / 1000
	}
	switch {
	case j.Medium != nil:
		e.Medium = canonicalMedium(*j.Medium)
	case e.Kind == kv.Removed:
		e.Medium = kv.AnyMedium
	}
	if e.Kind == kv.Cleared || e.Kind == kv.Heartbeat {
		return e, nil
	}
	if j.BlockHash == "" {
		return e, fmt.Errorf("%s without a block_hash", j.EventType)
	}
	e.Hashes = []kv.EngineHash{kv.Named(j.BlockHash)}
	e.ByName = len(j.TokenIDs) == 0
	if j.ParentBlockHash != "" {
		e.Parent = kv.Named(j.ParentBlockHash)
	}
	return e, nil
}

// AppendJSON appends a batch as document 003's engines publish it: one object
// per block, in an array. Pod is written as pod_id where an event names none.
// A Stored event of several blocks becomes one object per block, each with its
// true parent and its tokens.
func AppendJSON(dst []byte, b kv.Batch, pod string) ([]byte, error) {
	var out []jsonEvent
	for i := range b.Events {
		out = appendJSONEvents(out, &b.Events[i], b.At, pod)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return dst, fmt.Errorf("KV events as JSON: %w", err)
	}
	return append(dst, text...), nil
}

func appendJSONEvents(out []jsonEvent, e *kv.Event, at float64, pod string) []jsonEvent {
	at = cmp.Or(e.At, at)
	j := jsonEvent{EventType: e.Kind.Document(), PodID: cmp.Or(e.Pod, pod), LayerID: e.LayerID, Model: e.Model,
		LoRAName: e.LoRAName, NumGPUBlocks: e.Capacity}
	if at > 0 && at < 1<<37 {
		j.Timestamp = time.UnixMilli(int64(at * 1000)).UTC().Format(time.RFC3339Nano)
	}
	if e.Kind == kv.Cleared || e.Kind == kv.Heartbeat {
		return append(out, j)
	}
	if m := e.Medium; m != kv.AnyMedium && (m != kv.MediumGPU || e.Kind == kv.Removed) {
		j.Medium = &m
	}
	parent := e.Parent
	for i, h := range e.Hashes {
		j := j
		j.BlockHash = h.Name()
		if e.Name != "" {
			j.BlockHash = e.Name
		}
		if e.Kind != kv.Removed {
			j.CacheSizeBytes = e.BlockBytes
			from, to := span(i, len(e.Hashes), len(e.Tokens))
			j.TokenIDs = e.Tokens[from:to]
			j.NumTokens = to - from
			if e.ByName {
				j.NumTokens = e.BlockTokens
			}
			if parent != 0 {
				j.ParentBlockHash = parent.Name()
			}
			parent = h
		}
		out = append(out, j)
	}
	return out
}

// span returns the part of n tokens that belongs to block i of count.
func span(i, count, n int) (from, to int) {
	return i * n / count, (i + 1) * n / count
}
