package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

var errLost = errors.New("a fault was asked for: the transfer is lost")

func portText(port int) string { return strconv.Itoa(port) }

// kvParams are the parts of kv_transfer_params and of document 002's fields
// that act here.
type kvParams struct {
	raw          []byte // as it came
	remoteDecode bool   // keep the blocks for another server
	key          string // under which that server asks for them, where it is told beforehand
	answers      bool   // and the answer names them all the same
	remote       *remoteKV
	source       *remoteKV // another server's cache, to take a beginning of the prompt from
	document     bool      // document 002: answer with kv_metadata
	session      string
	threshold    float64 // cache_hit_threshold; 0 is none
}

// remoteKV names blocks that another server holds.
type remoteKV struct {
	engineID string
	host     string
	port     int
	blocks   []int
	request  string
	tokens   int
	// key names a cache that the holder may not have yet; engineID and blocks are
	// empty then.
	key string
	// writer is the node that has put the blocks into the external cache, or -1
	// where they are known to be there; only with stored.
	writer int
	stored bool
}

// maxRemoteBlocks limits the block ids that a request may name.
const maxRemoteBlocks = 1 << 20

// parseKV reads kv_transfer_params as vLLM's NixlConnector does. Fields that
// are not known are kept and handed back by the prefill leg.
func parseKV(raw json.RawMessage) (kvParams, *openai.Error) {
	k := kvParams{raw: raw}
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		k.raw = nil
		return k, nil
	}
	var q struct {
		RemoteDecode  bool            `json:"do_remote_decode"`
		RemotePrefill bool            `json:"do_remote_prefill"`
		EngineID      string          `json:"remote_engine_id"`
		Blocks        json.RawMessage `json:"remote_block_ids"`
		Host          string          `json:"remote_host"`
		Port          json.RawMessage `json:"remote_port"`
		Request       string          `json:"remote_request_id"`
		Transfer      string          `json:"transfer_id"`
		Bootstrap     string          `json:"remote_bootstrap_addr"`
		Notify        json.RawMessage `json:"remote_notify_port"`
		Handshake     json.RawMessage `json:"remote_handshake_port"`
		Decoder       *peerKV         `json:"remote_decoder"`
		Prefiller     *peerKV         `json:"remote_prefiller"`
		Source        *peerKV         `json:"remote_kv_source"`
	}
	if bad := openai.Decode(raw, &q); bad != nil {
		bad.Param = "kv_transfer_params"
		bad.Message = "kv_transfer_params: " + bad.Message
		return k, bad
	}
	k.remoteDecode = q.RemoteDecode
	if q.Source != nil {
		k.source = q.Source.remote()
	}
	switch {
	case q.Decoder != nil: // offloading
		k.remoteDecode, k.key = true, peerKey(q.Decoder.Request)
		return k, nil
	case q.Prefiller != nil:
		k.remote = q.Prefiller.remote()
		return k, nil
	case q.Transfer != "" && q.RemoteDecode: // mooncake, and MoRI-IO, whose answer names the blocks as NIXL's does
		k.key, k.answers = transferKey(q.Transfer), len(q.Notify) > 0
		return k, nil
	case q.Transfer != "" && q.RemotePrefill && len(q.Notify) > 0 && string(bytes.TrimSpace(q.Blocks)) == "[]": // MoRI-IO, both legs at once
		port, err := portOf(q.Handshake)
		if err != nil {
			return k, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.remote_handshake_port: expected %v.", err)
		}
		k.remote = &remoteKV{host: q.Host, port: port, key: transferKey(q.Transfer)}
		return k, nil
	case q.Transfer != "" && q.RemotePrefill && q.Bootstrap != "":
		remote, err := bootstrapOf(q.Bootstrap)
		if err != nil {
			return k, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.remote_bootstrap_addr: %v.", err)
		}
		remote.engineID, remote.key = q.EngineID, transferKey(q.Transfer)
		k.remote = remote
		return k, nil
	case !q.RemotePrefill:
		return k, nil
	}
	fail := func(field, want string) (kvParams, *openai.Error) {
		return k, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.%s: expected %s.", field, want)
	}
	blocks, err := flatInts(q.Blocks, nil, 0)
	if err != nil {
		return fail("remote_block_ids", err.Error())
	}
	port, err := portOf(q.Port)
	if err != nil {
		return fail("remote_port", err.Error())
	}
	if q.EngineID == "" || q.Host == "" || len(blocks) == 0 {
		// As in vLLM nothing can be fetched then, and the prompt is computed here.
		return k, nil
	}
	k.remote = &remoteKV{engineID: q.EngineID, host: q.Host, port: port, blocks: blocks, request: q.Request}
	return k, nil
}

// flatInts reads a list of block ids, or lists of them, one per cache group.
func flatInts(raw json.RawMessage, into []int, depth int) ([]int, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return into, nil
	}
	if raw[0] != '[' {
		n, err := strconv.Atoi(strings.Trim(string(raw), `"`))
		if err != nil || depth == 0 || n < 0 {
			return nil, fmt.Errorf("a list of block ids, got %.40s", raw)
		}
		return append(into, n), nil
	}
	if depth == 4 {
		return nil, errors.New("at most four lists inside one another")
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	for _, it := range items {
		var err error
		if into, err = flatInts(it, into, depth+1); err != nil {
			return nil, err
		}
		if len(into) > maxRemoteBlocks {
			return nil, fmt.Errorf("at most %d block ids", maxRemoteBlocks)
		}
	}
	return into, nil
}

func portOf(raw json.RawMessage) (int, error) {
	text := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	if text == "" || text == "null" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 65535 {
		return 0, fmt.Errorf("a port, 0 to 65535, got %.40s", raw)
	}
	return n, nil
}

// kvAnswer is the kv_transfer_params of a response: for a prefill leg what the
// decode leg needs to fetch the blocks, with everything else that was in the
// request.
func (g *generation) kvAnswer() []byte {
	if g.kept == nil || !g.req.kv.remoteDecode || g.req.kv.document || g.req.kv.key != "" && !g.req.kv.answers {
		return nil
	}
	host, port, err := g.s.side.address()
	if err != nil {
		g.s.log.Error("no KV side channel", "server", g.s.name, "error", err)
		return nil
	}
	fields := map[string]any{}
	_ = json.Unmarshal(g.req.kv.raw, &fields) // it was an object when it came
	fields["do_remote_prefill"], fields["do_remote_decode"] = true, false
	fields["remote_engine_id"], fields["remote_block_ids"] = g.s.engineID, g.kept.Blocks.Numbers()
	fields["remote_host"], fields["remote_port"] = host, port
	fields["remote_request_id"], fields["tp_size"] = g.req.id, max(1, g.s.opts.TensorParallel)
	out, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return out
}

// Document 002's handoff: kv_metadata {session_id, kv_handle,
// tokens_processed} in the first choice, and kv_handle in the request that
// goes on. A handle is a URL: kv://<side channel>/<engine>/<first
// block>-<blocks>-<tokens>.

// kvMetadata is document 002's answer of a prefill.
func (g *generation) kvMetadata() []byte {
	if g.kept == nil || !g.req.kv.document {
		return nil
	}
	host, port, err := g.s.side.address()
	if err != nil {
		return nil
	}
	h := g.kept
	handle := fmt.Sprintf("kv://%s/%s/%d-%d-%d", net.JoinHostPort(host, portText(port)), g.s.engineID, h.Blocks.First, h.Blocks.Count, h.Tokens)
	b := append([]byte(nil), `{"session_id":`...)
	b = appendStringOrNull(b, g.req.kv.session)
	b = append(b, `,"kv_handle":`...)
	b = openai.AppendString(b, handle)
	b = field(b, "tokens_processed", h.Tokens)
	return append(b, '}')
}

// maxHandle is the longest kv_handle, in bytes: room for any engine's name.
const maxHandle = 1024

// parseHandle reads a kv_handle, whose cache must be shorter than the context.
func parseHandle(handle string, maxModelLen int) (*remoteKV, *openai.Error) {
	fail := func(why string) (*remoteKV, *openai.Error) {
		return nil, openai.Errorf(400, "kv_handle", "kv_handle %.100q: %s; expected a handle that a prefill gave in kv_metadata.", handle, why)
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
	if err != nil || count < 1 || count > min(tokens, maxRemoteBlocks) || tokens > count*(1<<16) || first < 0 {
		return fail("its numbers are out of range")
	}
	if tokens >= maxModelLen {
		return nil, openai.TooLong(maxModelLen, tokens)
	}
	kv := &remoteKV{engineID: engineID, host: u.Hostname(), port: port, tokens: tokens, blocks: make([]int, count)}
	for i := range kv.blocks {
		kv.blocks[i] = (first + i) % (1 << 30)
	}
	return kv, nil
}

// useHandle makes a request go on from the cache that a handle names. The
// first use fetches it; later ones find it in this server's prefix cache.
func (s *Server) useHandle(req *request, handle string) *openai.Error {
	kv, bad := parseHandle(handle, s.cfg.MaxModelLen)
	if bad == nil {
		bad = s.mayFetch(kv)
	}
	if bad != nil {
		return bad
	}
	if kv.tokens+len(req.prompts[0].tokens) >= s.cfg.MaxModelLen {
		return openai.TooLong(s.cfg.MaxModelLen, kv.tokens+len(req.prompts[0].tokens))
	}
	// What the tokens are nobody says; that they are those of the handle is
	// enough for the cache.
	d := machine.DrawFor(0, "server", "kv_handle", handle)
	known := make([]uint32, kv.tokens, kv.tokens+len(req.prompts[0].tokens))
	for i := range known {
		known[i] = uint32(d.Uint64())
	}
	req.prompts[0].tokens = append(known, req.prompts[0].tokens...)
	if _, fetched := s.store.get(handle); !fetched {
		s.store.put(handle, nil, 0)
		req.kv.remote = kv
	}
	return nil
}

// FinishCacheThreshold is the finish reason of a request whose prompt is held
// by the cache to a smaller part than its cache_hit_threshold.
const FinishCacheThreshold openai.FinishReason = "cache_threshold"

// cacheThresholdHeader asks llm-d-inference-sim for that finish reason.
const cacheThresholdHeader = "X-Cache-Threshold-Finish-Reason"

// belowThreshold ends such a request, and is true when it has.
func (g *generation) belowThreshold(b *boxState) bool {
	if headerOf(g.r, cacheThresholdHeader) != "true" && (g.req.kv.threshold <= 0 || float64(b.cached) >= g.req.kv.threshold*float64(g.usage.PromptTokens)) {
		return false
	}
	g.do(g.session.PeerGone(g.s.clock(), "the cache holds less of the prompt than cache_hit_threshold"))
	g.buf = g.req.enc.begin(g.buf, g.usage)
	g.buf = g.req.enc.token(g.buf, &token{none: true, of: g.texts[0], done: FinishCacheThreshold})
	g.buf = g.req.enc.end(g.buf, g.usage, nil, nil)
	writeWhole(g.w, http.StatusOK, g.req.enc.contentType(), g.buf)
	return true
}
