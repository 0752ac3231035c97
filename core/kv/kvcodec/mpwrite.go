package kvcodec

import (
	"encoding/binary"
	"math"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Form is one of vLLM's forms of an event.
type Form uint8

// The two forms that are on the wire today.
const (
	ArrayForm Form = iota // ["BlockStored", hashes, …]
	MapForm               // {"type": "BlockStored", …}, newer vLLM
)

// AppendBatch appends a batch in the form of vLLM's publisher. Updated and Heartbeat events have no form in msgpack and
// are left out. A batch without events shows that the publisher is alive.
func AppendBatch(dst []byte, b kv.Batch, form Form) []byte {
	n := 0
	for i := range b.Events {
		if b.Events[i].Kind <= kv.Cleared {
			n++
		}
	}
	dst = append(dst, 0x93)
	dst = binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(b.At))
	dst = mpArray(dst, n)
	for i := range b.Events {
		if e := &b.Events[i]; e.Kind <= kv.Cleared {
			dst = appendEvent(dst, e, form)
		}
	}
	return mpOptional(dst, int64(b.DataParallelRank), b.DataParallelRank < 0)
}

const mpNil = 0xc0

// mpOptional writes a number, or nil.
func mpOptional(dst []byte, v int64, missing bool) []byte {
	if missing {
		return append(dst, mpNil)
	}
	return mpInt(dst, v)
}

func mpTextOrNil(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, mpNil)
	}
	return mpText(dst, s)
}

// fieldsIn returns how many of a kind's fields are written: up to lora_name
// always, later ones only where one of them says something.
func fieldsIn(e *kv.Event) []string {
	switch e.Kind {
	case kv.Stored:
		switch {
		case e.SlidingWindow != 0:
			return storedFields
		case e.SpecKind != "":
			return storedFields[:10]
		case e.Group != kv.NoGroup:
			return storedFields[:9]
		case e.ExtraKeys != nil:
			return storedFields[:8]
		}
		return storedFields[:7]
	case kv.Removed:
		if e.Group != kv.NoGroup {
			return removedFields
		}
		return removedFields[:2]
	}
	return nil
}

func appendEvent(dst []byte, e *kv.Event, form Form) []byte {
	fields := fieldsIn(e)
	if form == MapForm {
		dst = mpText(append(dst, 0x80|byte(1+len(fields))), "type")
	} else {
		dst = mpArray(dst, 1+len(fields))
	}
	dst = mpText(dst, e.Kind.String())
	for _, f := range fields {
		if form == MapForm {
			dst = mpText(dst, f)
		}
		dst = appendField(dst, e, f)
	}
	return dst
}

func appendField(dst []byte, e *kv.Event, name string) []byte {
	switch name {
	case "block_hashes":
		dst = mpArray(dst, len(e.Hashes))
		for _, h := range e.Hashes {
			dst = binary.BigEndian.AppendUint64(append(dst, 0xcf), uint64(h))
		}
		return dst
	case "parent_block_hash":
		if e.Parent == 0 {
			return append(dst, mpNil)
		}
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), uint64(e.Parent))
	case "token_ids":
		dst = mpArray(dst, len(e.Tokens))
		for _, t := range e.Tokens {
			dst = mpInt(dst, int64(t))
		}
		return dst
	case "block_size":
		return mpInt(dst, int64(e.BlockTokens))
	case "lora_id":
		return mpOptional(dst, e.LoRAID, e.LoRAName == "" && e.LoRAID == 0)
	case "medium":
		return mpText(dst, vllmMedium(e.Medium))
	case "lora_name":
		return mpTextOrNil(dst, e.LoRAName)
	case "extra_keys":
		return appendExtraKeys(dst, e)
	case "group_idx":
		return mpOptional(dst, int64(e.Group), e.Group == kv.NoGroup)
	case "kv_cache_spec_kind":
		return mpTextOrNil(dst, e.SpecKind)
	default: // sliding_window
		return mpInt(dst, int64(e.SlidingWindow))
	}
}

func appendExtraKeys(dst []byte, e *kv.Event) []byte {
	if e.ExtraKeys == nil {
		return append(dst, 0xc0)
	}
	n := max(len(e.Hashes), len(e.ExtraKeys))
	dst = mpArray(dst, n)
	for i := range n {
		if i >= len(e.ExtraKeys) || e.ExtraKeys[i] == nil {
			dst = append(dst, 0xc0)
			continue
		}
		dst = mpArray(dst, len(e.ExtraKeys[i]))
		for _, k := range e.ExtraKeys[i] {
			dst = mpText(dst, k)
		}
	}
	return dst
}

// vllmMedium writes the two usual media as vLLM spells them.
func vllmMedium(m string) string {
	switch m {
	case kv.MediumGPU:
		return "GPU"
	case kv.MediumCPU:
		return "CPU"
	}
	return m
}

func mpArray(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

func mpText(dst []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n < 1<<8:
		dst = append(dst, 0xd9, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

// mpInt writes the shortest form, as msgpack libraries do.
func mpInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0 && v < 0x80, v < 0 && v >= -32:
		return append(dst, byte(v))
	case v >= 0 && v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v >= 0 && v < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v >= 0 && v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	case v >= 0:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), uint64(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}
