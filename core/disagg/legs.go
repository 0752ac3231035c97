package disagg

import (
	"encoding/json"
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
)

// What the legs' bodies are, connector by connector. Each takes the client's
// body and returns the fields that differ.

// single are the fields that ask for one token, as nixlv2 sends them on this
// path. min_tokens goes with them, or an engine would refuse the pair.
func single(path string, body object) object {
	switch path {
	case responsesPath:
		return object{"max_output_tokens": 1, "stream": false, "stream_options": absent}
	case generatePath:
		sampling := body.object("sampling_params").with(object{"max_tokens": 1, "min_tokens": 1})
		return object{"sampling_params": sampling, "stream": false, "stream_options": absent}
	}
	return object{"max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 1, "stream": false, "stream_options": absent}
}

// singleLoose is what mooncake, offloading and encode servers get instead:
// max_completion_tokens only where the client has it.
func singleLoose(path string, body object) object {
	if path == responsesPath || path == generatePath {
		return single(path, body)
	}
	f := object{"max_tokens": 1, "stream": false, "stream_options": absent}
	if _, has := body["max_completion_tokens"]; has {
		f["max_completion_tokens"] = 1
	}
	return lowerMinimum(f, body)
}

// lowerMinimum lowers a min_tokens that an engine would refuse beside
// max_tokens 1. The real sidecar leaves it.
func lowerMinimum(f, body object) object {
	if n, ok := body.integer("min_tokens"); ok && n > 1 {
		f["min_tokens"] = 1
	}
	return f
}

// nixlPrefill asks the prefill server to keep its blocks for another; kv may
// be MoRI-IO's.
func nixlPrefill(path string, body, kv, source object) object {
	if kv == nil {
		kv = object{"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil,
			"remote_block_ids": nil, "remote_host": nil, "remote_port": nil}
	}
	if source != nil {
		kv["remote_kv_source"] = source
	}
	f := single(path, body)
	f["kv_transfer_params"] = kv
	return body.with(f)
}

// sharedStoragePrefill: shared storage writes and finds caches by their content; a threshold of 0
// takes whatever is there.
func sharedStoragePrefill(path string, body object) object {
	f := lowerMinimum(object{"cache_hit_threshold": 0, "max_tokens": 1, "max_completion_tokens": 1}, body)
	switch path {
	case responsesPath, generatePath:
		f = single(path, body)
		f["cache_hit_threshold"] = 0
	}
	return body.with(f)
}

func sharedStorageDecode(body object) object {
	return body.with(object{"cache_hit_threshold": 0})
}

// lmcachePrefill warms the external cache, where decode finds the blocks by
// their content.
func lmcachePrefill(path string, body object) object { return body.with(single(path, body)) }

func sglangBody(body object, host string, port int, room int64) object {
	return body.with(object{"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room})
}

func mooncakePrefill(path string, body object, transfer string) object {
	f := singleLoose(path, body)
	f["kv_transfer_params"] = object{"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": transfer}
	return body.with(f)
}

func mooncakeDecode(body object, t Target, port int, engineID, transfer string) object {
	t.Port = port
	return body.with(object{"kv_transfer_params": object{"do_remote_decode": false, "do_remote_prefill": true,
		"remote_bootstrap_addr": "http://" + t.String(), "remote_engine_id": engineID, "transfer_id": transfer}})
}

func offloadingPrefill(path string, body object, id string, source object) object {
	kv := object{"remote_decoder": object{"kv_request_id": id}}
	if source != nil {
		kv["remote_kv_source"] = source
	}
	f := singleLoose(path, body)
	f["kv_transfer_params"] = kv
	return body.with(f)
}

func offloadingDecode(body object, t Target, port int, id string) object {
	return body.with(object{"kv_transfer_params": object{"remote_prefiller": object{
		"kv_request_id": id, "remote_host": t.Host, "remote_port": port}}})
}

// ErrorBody is the real sidecar's error object.
func ErrorBody(status int, message string) []byte {
	b, err := json.Marshal(struct {
		Object  string `json:"object"`
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   string `json:"param"`
		Code    int    `json:"code"`
	}{"error", message, apierror.Of(status).Sidecar, "", status})
	if err != nil {
		panic(err) // text and a number
	}
	return b
}

// jsonType reports whether a Content-Type is JSON.
func jsonType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
