package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/openai"
)

// KVParams are the parts of kv_transfer_params, and of the fields of document 002
// and SGLang, that act at a model server.
type KVParams struct {
	Raw          []byte             // as it came
	RemoteDecode bool               // keep the blocks for another server
	Key          string             // under which that server asks for them, where it is told beforehand
	Answers      bool               // and the answer names them all the same
	Remote       *enginecore.Remote // whose blocks to fetch; nil: none
	Source       *enginecore.Remote // another server's cache, to take a beginning of the prompt from
	Document     bool               // document 002: answer with kv_metadata
	Session      string             // for that
	Threshold    float64            // cache_hit_threshold; 0 is none
}

// Kept is a cache that a server keeps for another, as its answer names it.
type Kept struct {
	Host string // of the side channel
	Port int
	Hold *enginecore.Hold
}

// maxRemoteBlocks limits the block ids that a request may name.
const maxRemoteBlocks = 1 << 20

// parseKV reads kv_transfer_params as vLLM's NixlConnector does. Fields that
// are not known are kept and handed back by the prefill leg.
func parseKV(raw json.RawMessage) (KVParams, *openai.Error) {
	k := KVParams{Raw: raw}
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		k.Raw = nil
		return k, nil
	}
	var q struct {
		RemoteDecode  bool            `json:"do_remote_decode"`
		RemotePrefill bool            `json:"do_remote_prefill"`
		EngineID      string          `json:"remote_engine_id"`
		Blocks        json.RawMessage `json:"remote_block_ids"`
		Host          string          `json:"remote_host"`
		Port          json.RawMessage `json:"remote_port"`
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
	k.RemoteDecode = q.RemoteDecode
	if q.Source != nil {
		k.Source = q.Source.remote()
	}
	switch {
	case q.Decoder != nil: // offloading
		k.RemoteDecode, k.Key = true, peerKey(q.Decoder.Request)
		return k, nil
	case q.Prefiller != nil:
		k.Remote = q.Prefiller.remote()
		return k, nil
	case q.Transfer != "" && q.RemoteDecode: // mooncake, and MoRI-IO, whose answer names the blocks as NIXL's does
		k.Key, k.Answers = transferKey(q.Transfer), len(q.Notify) > 0
		return k, nil
	case q.Transfer != "" && q.RemotePrefill && len(q.Notify) > 0 && string(bytes.TrimSpace(q.Blocks)) == "[]": // MoRI-IO, both legs at once
		port, err := portOf(q.Handshake)
		if err != nil {
			return k, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.remote_handshake_port: expected %v.", err)
		}
		k.Remote = &enginecore.Remote{Host: q.Host, Port: port, Key: transferKey(q.Transfer)}
		return k, nil
	case q.Transfer != "" && q.RemotePrefill && q.Bootstrap != "":
		remote, err := bootstrapOf(q.Bootstrap)
		if err != nil {
			return k, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.remote_bootstrap_addr: %v.", err)
		}
		remote.EngineID, remote.Key = q.EngineID, transferKey(q.Transfer)
		k.Remote = remote
		return k, nil
	case !q.RemotePrefill:
		return k, nil
	}
	fail := func(field, want string) (KVParams, *openai.Error) {
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
	k.Remote = &enginecore.Remote{EngineID: q.EngineID, Host: q.Host, Port: port, Blocks: enginecore.BlocksOf(blocks)}
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

// peerKV is one end of the offloading connector's kv_transfer_params.
type peerKV struct {
	Request string `json:"kv_request_id"`
	Host    string `json:"remote_host"`
	Port    int    `json:"remote_port"`
}

func (p *peerKV) remote() *enginecore.Remote {
	return &enginecore.Remote{Host: p.Host, Port: p.Port, Key: peerKey(p.Request)}
}

func peerKey(id string) string     { return "peer " + id }
func transferKey(id string) string { return "transfer " + id }

// bootstrapOf reads Mooncake's remote_bootstrap_addr.
func bootstrapOf(address string) (*enginecore.Remote, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("%.100q is no address such as http://10.0.0.5:8998", address)
	}
	return &enginecore.Remote{Host: u.Hostname(), Port: port}, nil
}

// meetAt reads SGLang's fields, which both servers get. Where the named
// bootstrap server is this one the request is to be prefilled here, and one
// token is all that is made; elsewhere it is decoded here.
func (r *Reader) meetAt(q *Request, kv *KVParams, p *openai.Sampling) *openai.Error {
	if r.Connector.Name != link.SGLang.Name || len(p.BootstrapRoom) == 0 || string(p.BootstrapRoom) == "null" {
		return nil
	}
	var host string
	port, err := portOf(p.BootstrapPort)
	if err == nil && len(p.BootstrapHost) > 0 {
		err = json.Unmarshal(p.BootstrapHost, &host)
	}
	room, bad := strconv.ParseUint(string(p.BootstrapRoom), 10, 63)
	if err != nil || bad != nil || host == "" || port == 0 {
		return openai.Errorf(400, "bootstrap_room", "bootstrap_host, bootstrap_port and bootstrap_room: expected a host, a port and a room's number, got %.80s, %.40s and %.40s.", p.BootstrapHost, p.BootstrapPort, p.BootstrapRoom)
	}
	key := "room " + strconv.FormatUint(room, 10)
	if r.KVRole == RoleProducer || r.KVRole != RoleConsumer && r.State.MeetsAt(host, port) {
		kv.RemoteDecode, kv.Key, q.MaxTokens, q.MinTokens = true, key, 1, min(q.MinTokens, 1)
		return nil
	}
	kv.Remote = &enginecore.Remote{Host: host, Port: port, Key: key}
	return nil
}

// mayFetch refuses a request that names a server which is no peer.
func (r *Reader) mayFetch(from ...*enginecore.Remote) *openai.Error {
	for _, kv := range from {
		if kv != nil && !r.KVPeers.allow(kv.Host, r.State.Own) {
			return openai.Errorf(403, "kv_transfer_params", "%.100q is none of the servers that this one fetches KV caches from. Start it with --kv-peers to name them.", kv.Host)
		}
	}
	return nil
}
