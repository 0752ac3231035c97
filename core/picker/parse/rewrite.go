package parse

import (
	"bytes"
	"encoding/json"
)

// RewriteModel returns the body with another model name and every other byte
// as it was. A body without a model gets one as its first member.
func RewriteModel(raw []byte, model string) ([]byte, error) {
	name, err := json.Marshal(model)
	if err != nil {
		return nil, err
	}
	start, end, brace, err := modelSpan(raw)
	if err != nil {
		return nil, err
	}
	if start >= 0 {
		return splice(raw, start, end, name), nil
	}
	member := append([]byte(`"model":`), name...)
	if rest := bytes.TrimLeft(raw[brace+1:], " \t\r\n"); len(rest) > 0 && rest[0] != '}' {
		member = append(member, ',')
	}
	return splice(raw, brace+1, brace+1, member), nil
}

func splice(raw []byte, start, end int, with []byte) []byte {
	out := make([]byte, 0, len(raw)-(end-start)+len(with))
	out = append(out, raw[:start]...)
	out = append(out, with...)
	return append(out, raw[end:]...)
}

// modelSpan finds the value of the last top-level "model" member, and the
// opening brace. start is -1 when there is none.
func modelSpan(raw []byte) (start, end, brace int, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	start, end = -1, -1
	if _, err = dec.Token(); err != nil {
		return
	}
	brace = int(dec.InputOffset()) - 1
	for dec.More() {
		var key json.Token
		if key, err = dec.Token(); err != nil {
			return
		}
		var v json.RawMessage
		if err = dec.Decode(&v); err != nil {
			return
		}
		if key == "model" {
			end = int(dec.InputOffset())
			start = end - len(v)
		}
	}
	return
}

// RestoreModel writes the client's model name back into a response chunk:
// exactly the text "model":"target" or, where there is none, with one space
// after the colon, at any depth, as the real EPP does. A name split over two chunks stays.
func RestoreModel(chunk []byte, target, client string) []byte {
	if target == client || target == "" {
		return chunk
	}
	t, err := json.Marshal(target)
	if err != nil {
		return chunk
	}
	c, err := json.Marshal(client)
	if err != nil {
		return chunk
	}
	for _, key := range []string{`"model":`, `"model": `} {
		if old := append([]byte(key), t...); bytes.Contains(chunk, old) {
			return bytes.ReplaceAll(chunk, old, append([]byte(key), c...))
		}
	}
	return chunk
}
