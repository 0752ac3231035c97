package disagg

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// transferFields are the fields of a body that name the server from which an engine fetches caches. Only the sidecar
// may write them. A client that wrote them could make the decode server call any address from within the cluster.
var transferFields = []string{"kv_transfer_params", "ec_transfer_params", "kv_handle", "bootstrap_host",
	"bootstrap_port", "bootstrap_room"}

// isTransferField compares names as the most lenient engine does: encoding/json ignores case.
func isTransferField(name string) bool {
	return slices.ContainsFunc(transferFields, func(f string) bool { return strings.EqualFold(f, name) })
}

// maxEscaped is the longest form of one of the names: every letter escaped.
const maxEscaped = 6 * len("kv_transfer_params")

// mayName reports whether a text may contain one of the names, in any escaped form. It may return true for a text that
// has none.
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
	for _, c := range inside { // most are neither
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

// Scrub removes the fields that say where an engine fetches caches from a client's body, and returns the names of the
// fields that it found. A body without such fields comes back unchanged. A body that may have one and cannot be parsed
// is an error, since the engine might be able to parse it.
func Scrub(body []byte) (clean []byte, found []string, err error) {
	// JSON in UTF-16 or UTF-32, which some engines read, has zero bytes. JSON in UTF-8 has none.
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

// carriers are the fields whose members reach an engine as if they were in the body itself. vLLM itself puts
// kv_transfer_params among extra_args.
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
