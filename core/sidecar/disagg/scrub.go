package disagg

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// transferFields are the fields of a body that tell an engine which server to
// fetch caches from. Only the sidecar writes them: a client that did would have
// the decode server call whom it likes, from within the cluster.
var transferFields = []string{"kv_transfer_params", "ec_transfer_params", "kv_handle", "bootstrap_host",
	"bootstrap_port", "bootstrap_room"}

// isTransferField reads names as the most lenient engine does: encoding/json
// takes them in any case.
func isTransferField(name string) bool {
	return slices.ContainsFunc(transferFields, func(f string) bool { return strings.EqualFold(f, name) })
}

// maxEscaped is the longest that one of the names can be written: with every
// letter escaped.
const maxEscaped = 6 * len("kv_transfer_params")

// mayName reports whether one of the names can stand in a text, in whatever way it
// is quoted. It is true of texts that only look so.
func mayName(body []byte) bool {
	for {
		i := bytes.IndexByte(body, '"')
		if i < 0 {
			return false
		}
		body = body[i+1:]
		end := bytes.IndexByte(body[:min(len(body), maxEscaped+1)], '"')
		if end > 0 && transferText(body[:end]) {
			return true
		}
	}
}

// transferText reports whether the inside of a JSON string is one of the names.
func transferText(inside []byte) bool {
	if len(inside) < len("kv_handle") {
		return false
	}
	for _, c := range inside { // of which most are neither
		if c != '_' && c != '\\' && c < 0x80 && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	name := string(inside)
	if bytes.IndexByte(inside, '\\') >= 0 && json.Unmarshal([]byte(`"`+name+`"`), &name) != nil {
		return false
	}
	return isTransferField(name)
}

// Scrub takes the fields that say where caches are fetched from out of a
// client's body, and names those that it found; mostly it is the body as it
// came. What may hold one and is not understood is an error: the engine might
// understand it.
func Scrub(body []byte) (clean []byte, found []string, err error) {
	// JSON in UTF-16 or UTF-32, which some engines read, has zero bytes; in UTF-8
	// there are none.
	if !mayName(body) && bytes.IndexByte(body, 0) < 0 {
		return body, nil, nil
	}
	o, err := jsonobject.Parse(body)
	if err != nil {
		return nil, nil, err
	}
	if found = scrub(o, nil); len(found) == 0 {
		return body, nil, nil
	}
	slices.Sort(found)
	return o.Write(), found, nil
}

// carriers are the fields whose fields reach an engine as if they were the
// body's own: vLLM has kv_transfer_params among extra_args itself.
var carriers = []string{"sampling_params", "extra_args", "vllm_xargs"}

func scrub(o object, found []string) []string {
	for name, v := range o {
		if isTransferField(name) {
			found = append(found, name)
			delete(o, name)
			continue
		}
		if inner, ok := v.(map[string]any); ok &&
			slices.ContainsFunc(carriers, func(c string) bool { return strings.EqualFold(c, name) }) {
			found = scrub(inner, found)
		}
	}
	return found
}
