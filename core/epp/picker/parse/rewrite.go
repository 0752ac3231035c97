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
	return SetMember(raw, name, "model")
}

// SetMember returns a JSON object with another value of one member and every other
// byte as it was. path are the names of objects that it is in, and its own. What is not there
// becomes the first member.
func SetMember(raw, value []byte, path ...string) ([]byte, error) {
	start, end, brace, err := memberSpan(raw, path[0])
	if err != nil {
		return nil, err
	}
	if len(path) > 1 {
		in := []byte("{}")
		if start >= 0 && raw[start] == '{' {
			in = raw[start:end]
		}
		if value, err = SetMember(in, value, path[1:]...); err != nil {
			return nil, err
		}
	}
	if start >= 0 {
		return splice(raw, start, end, value), nil
	}
	name, err := json.Marshal(path[0])
	if err != nil {
		return nil, err
	}
	member := append(append(name, ':'), value...)
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

// memberSpan finds the value of the last top-level member of a name, and the opening brace. start is -1 if there is
// none.
func memberSpan(raw []byte, name string) (start, end, brace int, err error) {
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
		if key == name {
			end = int(dec.InputOffset())
			start = end - len(v)
		}
	}
	return
}

// RestoreModel writes the client's model name back into a response chunk. It replaces exactly the text "model":"target"
// or, if that is missing, the same with one space after the colon, at any depth, as the real EPP does. A name split
// over two chunks stays.
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
