package kvcodec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Decoder reads vLLM's msgpack messages. It reuses its memory: a Batch is valid until the next Decode. One Decoder
// belongs to one goroutine.
//
// It is as strict as the recorded endpoint picker (llm-d-router v0.10.0), so that a publisher which works here works
// there: a batch is an array of exactly three elements [ts, events, data_parallel_rank], hashes have their 9-byte form,
// and one invalid event makes the whole message invalid.
type Decoder struct {
	Limits Limits
	// Lenient also takes batches without a rank and hashes in short integer
	// forms, for publishers that the ecosystem's picker would not understand.
	Lenient bool
	// SGLang reads SGLang's form: vLLM's arrays, up to extra_keys and without
	// groups, and no maps.
	SGLang bool

	events []kv.Event
	hashes []kv.EngineHash
	tokens []uint32
}

// Decode reads one message. An error names the event, the field and the byte.
func (d *Decoder) Decode(payload []byte) (kv.Batch, error) {
	lim := d.Limits.orDefaults()
	if len(payload) > lim.PayloadBytes {
		return kv.Batch{}, fmt.Errorf("KV event message has %d bytes, the limit is %d", len(payload), lim.PayloadBytes)
	}
	d.events, d.hashes, d.tokens = d.events[:0], d.hashes[:0], d.tokens[:0]
	r := mpReader{b: payload}
	b, err := d.batch(&r, lim)
	if err != nil {
		return kv.Batch{}, fmt.Errorf("KV event message: %w", err)
	}
	return b, nil
}

func (d *Decoder) batch(r *mpReader, lim Limits) (kv.Batch, error) {
	b := kv.Batch{DataParallelRank: -1}
	n, err := r.array("a batch [ts, events, data_parallel_rank]", 1<<16)
	if err != nil {
		return b, err
	}
	if n != 3 && !(d.Lenient && n >= 2) {
		return b, fmt.Errorf("the batch has %d elements, expected exactly 3: [ts, events, data_parallel_rank] (rank "+
			"may be nil)", n)
	}
	if !r.takeNil() {
		if b.At, err = r.float("ts, a number"); err != nil {
			return b, err
		}
	}
	count, err := r.array("events, an array", lim.Events)
	if err != nil {
		return b, err
	}
	for i := range count {
		d.events = append(d.events, kv.Event{})
		e := &d.events[len(d.events)-1]
		if err := d.event(r, lim, e); err != nil {
			what := ""
			if e.Kind != 0 {
				what = " (" + e.Kind.String() + ")"
			}
			return b, fmt.Errorf("event %d%s: %w", i, what, err)
		}
	}
	b.Events = d.events
	if n >= 3 && !r.takeNil() {
		rank, err := r.number("data_parallel_rank, an integer or nil")
		if err != nil {
			return b, err
		}
		b.DataParallelRank = int(int64(rank))
	}
	for i := 3; i < n; i++ {
		if err := r.skip(0); err != nil {
			return b, err
		}
	}
	return b, nil
}

// The fields of an event, in the order of vLLM's array form.
var (
	storedFields = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
		"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
	removedFields = []string{"block_hashes", "medium", "group_idx"}
)

// groupFields is the number of a kind's last fields that are about groups, which SGLang lacks.
var groupFields = map[kv.Kind]int{kv.Stored: 3, kv.Removed: 1}

// needed returns how many of a kind's fields must be there.
var needed = [kv.Cleared + 1]int{kv.Stored: 4, kv.Removed: 1}

func (d *Decoder) event(r *mpReader, lim Limits, e *kv.Event) error {
	e.Group = kv.NoGroup
	e.Medium = kv.MediumGPU
	if r.isMap() && !d.SGLang {
		return d.mapEvent(r, lim, e)
	}
	n, err := r.array("an event (array or map)", 1<<16)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the event is an empty array, expected its name first")
	}
	fields, err := d.tag(r, lim, e)
	if err != nil {
		return err
	}
	if n-1 < needed[e.Kind] {
		return fmt.Errorf("it ends before %s", fields[n-1])
	}
	if d.SGLang && e.Kind != kv.Cleared {
		if most := len(fields) - groupFields[e.Kind]; n-1 > most {
			return fmt.Errorf("it has %d fields, SGLang's has at most %d", n-1, most)
		}
	}
	for i := range n - 1 {
		if i >= len(fields) { // a field of a later vLLM
			err = r.skip(0)
		} else if err = d.field(r, lim, e, fields[i]); err != nil {
			err = fmt.Errorf("%s: %w", fields[i], err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) tag(r *mpReader, lim Limits, e *kv.Event) ([]string, error) {
	name, err := r.text("the event's name", lim.TextBytes)
	if err != nil {
		return nil, err
	}
	switch string(name) {
	case "BlockStored":
		e.Kind = kv.Stored
		return storedFields, nil
	case "BlockRemoved":
		e.Kind = kv.Removed
		return removedFields, nil
	case "AllBlocksCleared":
		e.Kind = kv.Cleared
		return nil, nil
	}
	return nil, fmt.Errorf("unknown event %.40q, expected BlockStored, BlockRemoved or AllBlocksCleared", name)
}

// mapEvent reads the newer form, a map with "type". The type may stand
// anywhere, so it is looked for first.
func (d *Decoder) mapEvent(r *mpReader, lim Limits, e *kv.Event) error {
	n, err := r.mapLen("an event")
	if err != nil {
		return err
	}
	start := r.off
	var fields []string
	for range n {
		key, err := r.text("a field's name", lim.TextBytes)
		if err != nil {
			return err
		}
		if string(key) == "type" && fields == nil && e.Kind == 0 {
			if fields, err = d.tag(r, lim, e); err != nil {
				return err
			}
			continue
		}
		if err := r.skip(0); err != nil {
			return err
		}
	}
	if e.Kind == 0 {
		return errors.New(`the map has no "type"`)
	}
	r.off = start
	var seen uint32
	for range n {
		key, err := r.text("a field's name", lim.TextBytes)
		if err != nil {
			return err
		}
		at := slices.Index(fields, string(key))
		if at < 0 {
			err = r.skip(0)
		} else if seen&(1<<at) != 0 {
			err = errors.New("the field stands there twice")
		} else {
			err = d.field(r, lim, e, fields[at])
			seen |= 1 << at
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	for i := range needed[e.Kind] {
		if seen&(1<<i) == 0 && fields[i] != "parent_block_hash" {
			return fmt.Errorf("%s is missing", fields[i])
		}
	}
	return nil
}

func (d *Decoder) field(r *mpReader, lim Limits, e *kv.Event, name string) (err error) {
	required := name == "block_hashes" || name == "token_ids" || name == "block_size"
	if (d.SGLang || !required) && r.takeNil() {
		return nil
	}
	number := func() int64 {
		var v uint64
		v, err = r.number("an integer or nil")
		return int64(v)
	}
	switch name {
	case "block_hashes":
		e.Hashes, err = d.hashList(r, lim)
	case "token_ids":
		e.Tokens, err = d.tokenList(r, lim)
	case "parent_block_hash":
		e.Parent, err = r.hash(d.Lenient)
	case "block_size":
		var v uint64
		v, err = r.number("an integer")
		e.BlockTokens = int(int32(v))
	case "lora_id":
		e.LoRAID = number()
	case "medium":
		e.Medium, err = d.name(r, lim)
		e.Medium = canonicalMedium(e.Medium)
	case "lora_name":
		e.LoRAName, err = d.name(r, lim)
	case "extra_keys":
		e.ExtraKeys, err = d.extraKeys(r, lim)
	case "group_idx":
		if e.Group = int(int32(number())); e.Group < 0 && err == nil {
			err = fmt.Errorf("found %d, expected a number from 0", e.Group)
		}
	case "kv_cache_spec_kind":
		e.SpecKind, err = d.name(r, lim)
	case "kv_cache_spec_sliding_window":
		e.SlidingWindow = int(int32(number()))
	}
	return err
}

func (d *Decoder) name(r *mpReader, lim Limits) (string, error) {
	b, err := r.text("a string or nil", lim.TextBytes)
	return string(b), err
}

func (d *Decoder) hashList(r *mpReader, lim Limits) ([]kv.EngineHash, error) {
	n, err := r.array("an array of hashes", lim.Blocks)
	if err != nil {
		return nil, err
	}
	from := len(d.hashes)
	for i := range n {
		h, err := r.hash(d.Lenient)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		d.hashes = append(d.hashes, h)
	}
	return d.hashes[from:len(d.hashes):len(d.hashes)], nil
}

// tokenList reads token ids of any integer form; like the recorded picker it
// keeps their lower 32 bits.
func (d *Decoder) tokenList(r *mpReader, lim Limits) ([]uint32, error) {
	n, err := r.array("an array of token ids", lim.Tokens)
	if err != nil {
		return nil, err
	}
	from := len(d.tokens)
	for i := range n {
		if r.off < len(r.b) && r.b[r.off] < 0x80 {
			d.tokens = append(d.tokens, uint32(r.b[r.off]))
			r.off++
			continue
		}
		v, err := r.number("a token id")
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		d.tokens = append(d.tokens, uint32(v))
	}
	return d.tokens[from:len(d.tokens):len(d.tokens)], nil
}

// extraKeys reads one list per engine block: strings, or arrays whose first
// element is one (an image's hash and its offset). Other values do not
// distinguish blocks, as recorded.
func (d *Decoder) extraKeys(r *mpReader, lim Limits) ([][]string, error) {
	n, err := r.array("an array (one list or nil per block) or nil", lim.Blocks)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for i := range n {
		if r.takeNil() {
			continue
		}
		m, err := r.array("a list of keys or nil", 1<<16)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		var keys []string
		for range m {
			if keys, err = d.extraKey(r, lim, keys); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		if keys != nil {
			for len(out) < i {
				out = append(out, nil)
			}
			out = append(out, keys)
		}
	}
	if out != nil { // how many blocks there are matters
		out = append(out, make([][]string, n-len(out))...)
	}
	return out, nil
}

func (d *Decoder) extraKey(r *mpReader, lim Limits, keys []string) ([]string, error) {
	if r.left() == 0 {
		return nil, r.errWant("a key")
	}
	c := r.b[r.off]
	isText := func(c byte) bool { return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb }
	if isText(c) {
		t, err := r.text("a key", lim.TextBytes)
		return append(keys, string(t)), err
	}
	if c&0xf0 != 0x90 && c != 0xdc && c != 0xdd {
		return keys, r.skip(0)
	}
	n, err := r.array("a key", 1<<16)
	for i := 0; i < n && err == nil; i++ {
		if i == 0 && r.left() > 0 && isText(r.b[r.off]) {
			var t []byte
			t, err = r.text("a key", lim.TextBytes)
			keys = append(keys, string(t))
		} else {
			err = r.skip(0)
		}
	}
	return keys, err
}

func canonicalMedium(s string) string {
	switch s {
	case "GPU", kv.MediumGPU:
		return kv.MediumGPU
	case "CPU", kv.MediumCPU:
		return kv.MediumCPU
	}
	return strings.ToLower(s)
}
