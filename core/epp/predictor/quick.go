package predictor

import "github.com/windtunnel/windtunnel/core/wire/plainjson"

// A decision waits for a question to be read, and for its answer. Both are nearly
// always as programs write them; all others are left to encoding/json.

// required are the fields of a row without a default, as bits of ReadRows; observed are the further ones of a sample.
const (
	required = 1<<6 - 1
	observed = 3 << 11
)

// ReadRows reads the list in a field of a message, if our picker or the real one wrote it: rows, or samples if times is
// set. It does not check them. If it returns false, the caller decodes the message in another way, which reports
// errors.
func ReadRows(text []byte, field string, times bool) (out []Sample, ok bool) {
	s := plainjson.Of(text)
	want := uint32(required)
	if times {
		want |= observed
	}
	whole := func(bit uint32, to *int64) (uint32, bool) {
		n, ok := s.Integer()
		*to = int64(n)
		return bit, ok
	}
	real := func(bit uint32, to *float64) (_ uint32, ok bool) {
		*to, ok = s.Real()
		return bit, ok
	}
	row := func() bool {
		out = append(out, Sample{})
		x := &out[len(out)-1]
		seen := uint32(0)
		ok := s.Object(func(name []byte) (bit uint32, ok bool) {
			switch string(name) {
			case "kv_cache_percentage":
				bit, ok = real(1, &x.KV)
			case "input_token_length":
				bit, ok = whole(1<<1, &x.InputTokens)
			case "num_request_waiting":
				bit, ok = whole(1<<2, &x.Waiting)
			case "num_request_running":
				bit, ok = whole(1<<3, &x.Running)
			case "num_tokens_generated":
				bit, ok = whole(1<<4, &x.Generated)
			case "prefix_cache_score":
				bit, ok = real(1<<5, &x.Prefix)
			case "pod_type":
				bit, ok = 1<<6, s.Text(&x.PodType)
			case "prefill_tokens_in_flight":
				bit, ok = whole(1<<7, &x.PrefillTokens)
			case "decode_tokens_in_flight":
				bit, ok = whole(1<<8, &x.DecodeTokens)
			case "encoder_matched_size":
				bit, ok = whole(1<<9, &x.EncoderMatched)
			case "encoder_input_size":
				bit, ok = whole(1<<10, &x.EncoderInput)
			case "actual_ttft_ms":
				bit, ok = real(1<<11, &x.TTFTMs)
			case "actual_tpot_ms":
				bit, ok = real(1<<12, &x.TPOTMs)
			case "timestamp":
				bit, ok = 1<<13, s.Skip()
			}
			seen |= bit
			return bit, ok
		})
		return ok && seen&want == want
	}
	ok = s.Object(func(name []byte) (uint32, bool) {
		return 1, string(name) == field && s.List(row)
	})
	return out, ok && s.Done()
}

// quickPredictions reads the answer to a question about so many rows.
func quickPredictions(text []byte, rows int) (out []Prediction, ok bool) {
	s := plainjson.Of(text)
	out = make([]Prediction, 0, rows)
	ok = s.Object(func(name []byte) (uint32, bool) {
		if string(name) != "predictions" {
			return 0, s.Skip()
		}
		return 1, s.List(func() bool {
			var p Prediction
			seen := uint32(0)
			ok := len(out) < rows && s.Object(func(name []byte) (bit uint32, ok bool) {
				switch string(name) {
				case "ttft_ms":
					bit = 1
					p.TTFTMs, ok = s.Real()
				case "tpot_ms":
					bit = 2
					p.TPOTMs, ok = s.Real()
				default:
					ok = s.Skip()
				}
				seen |= bit
				return bit, ok
			})
			out = append(out, p)
			return ok && seen == 3 && p.Check() == nil
		})
	})
	return out, ok && s.Done() && len(out) == rows
}
