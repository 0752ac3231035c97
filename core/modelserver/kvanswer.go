package modelserver

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Named reports whether the response names the kept blocks.
func (k *KVParams) Named() bool { return k.Keep && (k.Answer != nil || k.Document) }

// kvAnswer returns the kv_transfer_params of a response: the description of the blocks that its connector asks for.
func (r *Reader) kvAnswer(q *Request, kept *Kept) []byte {
	if kept == nil || q.KV.Document || !q.KV.Named() {
		return nil
	}
	out, err := json.Marshal(
		q.KV.Answer(&connector.Kept{EngineID: r.EngineID, RequestID: q.ID, Host: kept.Host, Port: kept.Port,
			Blocks: kept.Hold.Blocks, TensorParallel: r.TensorParallel}))
	if err != nil {
		return nil
	}
	return out
}

// Document 002's handoff: the first choice has kv_metadata {session_id, kv_handle, tokens_processed}, and the request
// that continues it has kv_handle. A handle is a URL: kv://<side channel>/<engine>/<first block>-<blocks>-<tokens>.

// kvMetadata returns document 002's answer to a prefill.
func (r *Reader) kvMetadata(q *Request, kept *Kept) []byte {
	if kept == nil || !q.KV.Document {
		return nil
	}
	host := kept.Host
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	handle := fmt.Sprintf("kv://%s:%d/%s/%d-%d-%d", host, kept.Port, r.EngineID, kept.Hold.Blocks.First,
		kept.Hold.Blocks.Count, kept.Hold.Tokens)
	return openai.Fill(nil, `{"session_id":$,"kv_handle":$,"tokens_processed":$}`, openai.OrNull(q.KV.Session), handle,
		kept.Hold.Tokens)
}

// maxHandle is the longest kv_handle, in bytes. Any engine's name fits.
const maxHandle = 1024

// parseHandle parses a kv_handle, whose cache must be shorter than the context.
func parseHandle(handle string, maxModelLen int) (*connector.Remote, *openai.Error) {
	fail := func(why string) (*connector.Remote, *openai.Error) {
		return nil, openai.Errorf(400, "kv_handle",
			"kv_handle %.100q: %s; expected a handle that a prefill gave in kv_metadata.", handle, why)
	}
	u, err := url.Parse(handle[:min(len(handle), maxHandle)])
	if err != nil || u.Scheme != "kv" || len(handle) > maxHandle {
		return fail("it is no kv:// URL")
	}
	engineID, numbers, ok := strings.Cut(strings.Trim(u.Path, "/"), "/")
	var first, count, tokens int
	if n, err := fmt.Sscanf(numbers, "%d-%d-%d", &first, &count, &tokens); !ok || err != nil || n != 3 {
		return fail("it names no blocks")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || count < 1 || count > min(tokens, connector.MaxRemoteBlocks) || tokens > count*(1<<16) ||
		first < 0 {
		return fail("its numbers are out of range")
	}
	if tokens >= maxModelLen {
		return nil, openai.TooLong(maxModelLen, tokens)
	}
	return &connector.Remote{EngineID: engineID, Host: u.Hostname(), Port: port, Tokens: tokens,
		Blocks: connector.Blocks{First: first, Count: count}}, nil
}

// useHandle makes a request continue from the cache that a handle names. The first use fetches the cache. Later ones
// find it in this server's prefix cache.
func (r *Reader) useHandle(q *Request, handle string) *openai.Error {
	kv, bad := parseHandle(handle, r.Engine.MaxModelLen)
	if bad == nil {
		bad = r.mayFetch(kv)
	}
	if bad != nil {
		return bad
	}
	p := &q.Prompts[0]
	if n := kv.Tokens + len(p.Tokens); n >= r.Engine.MaxModelLen {
		return openai.TooLong(r.Engine.MaxModelLen, n)
	}
	// A handle does not contain the tokens themselves. The prefix cache needs only to know that they belong to this
	// handle.
	d := machine.DrawFor(0, "server", "kv_handle", handle)
	known := make([]uint32, kv.Tokens, kv.Tokens+len(p.Tokens))
	for i := range known {
		known[i] = uint32(d.Uint64())
	}
	p.Tokens = append(known, p.Tokens...)
	if !r.State.Fetched(handle) {
		q.KV.Remote = kv
	}
	return nil
}
