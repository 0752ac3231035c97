package modelserver

import (
	"bytes"

	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// KVParams are the parts of kv_transfer_params, of document 002's fields and of SGLang's fields that a model server
// uses.
type KVParams struct {
	connector.Params
	Raw       []byte  // kv_transfer_params as received
	Document  bool    // document 002: answer with kv_metadata
	Session   string  // session_id of document 002
	Threshold float64 // cache_hit_threshold; 0 is none
}

// Kept describes a cache that a server keeps for another, in the terms of its answer.
type Kept struct {
	Host string // of the side channel
	Port int
	Hold *enginecore.Hold
}

// readKV reads the fields of a request that are about KV caches.
func (r *Reader) readKV(q *Request, p *openai.Sampling) *openai.Error {
	q.KV = KVParams{Session: p.SessionID, Threshold: r.CacheHitThreshold}
	kv := &q.KV
	if p.CacheHitThreshold != nil {
		kv.Threshold = *p.CacheHitThreshold
	}
	if raw := p.KVTransferParams; len(raw)+len(p.BootstrapRoom) > 0 { // no connector has other fields
		if string(bytes.TrimSpace(raw)) != "null" {
			kv.Raw = raw
		}
		at := connector.At{Connector: r.Connector.Name, Role: r.KVRole, MeetsAt: r.State.MeetsAt}
		var bad *openai.Error
		if q.knownKV != nil {
			kv.Params = *q.knownKV
		} else if kv.Params, bad = at.Read(p); bad != nil {
			return bad
		}
		if kv.OneToken {
			q.MaxTokens, q.MinTokens = 1, min(q.MinTokens, 1)
		}
		if bad := r.mayFetch(kv.Remote, kv.Source); bad != nil {
			return bad
		}
	}
	if p.KVMetadata {
		kv.Document, kv.Keep = true, true
	}
	if p.KVHandle != "" {
		return r.useHandle(q, p.KVHandle)
	}
	return nil
}

// mayFetch refuses a request that names a server outside the configured peers.
func (r *Reader) mayFetch(from ...*connector.Remote) *openai.Error {
	for _, kv := range from {
		if kv != nil && !r.KVPeers.allow(kv.Host, r.State.Own) {
			return openai.Errorf(403, "kv_transfer_params",
				"%.100q is not one of the servers that this one fetches KV caches from. Start it with --kv-peers to "+
					"name them.", kv.Host)
		}
	}
	return nil
}
