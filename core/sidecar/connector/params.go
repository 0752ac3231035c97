package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Params are the fields of a request, as a model server reads them, about a KV cache that is transferred.
type Params struct {
	// Keep keeps the blocks for another server. That server asks for them under Key, where both servers know the key
	// beforehand. OneToken limits the answer to one token.
	Keep     bool
	Key      string
	OneToken bool
	// Answer returns the response's kv_transfer_params, which name the kept blocks. It is nil where the response has
	// none.
	Answer func(*Kept) jsonobject.Object
	// Remote names the cache whose blocks the server fetches. Source names another server's cache that holds a prefix
	// of the prompt. Either may be nil.
	Remote, Source *Remote
}

// Kept is a cache that a server keeps for another.
type Kept struct {
	EngineID, RequestID string
	Host                string // of the side channel
	Port                int
	Blocks              Blocks
	TensorParallel      int
}

// At describes the model server that reads a request.
type At struct {
	Connector string // the server's own connector
	Role      string // RoleProducer or RoleConsumer; if empty, the address in the request decides
	// MeetsAt reports whether an address is the server's own meeting port.
	MeetsAt func(host string, port int) bool
}

// Values of vLLM's kv_role.
const (
	RoleProducer = "kv_producer"
	RoleConsumer = "kv_consumer"
)

// Read reads a request's transfer parameters in the format of the connector that they belong to. The default connector
// reads what no other one claims.
func (at *At) Read(p *openai.Sampling) (Params, *openai.Error) {
	for i := len(All) - 1; i >= 0; i-- {
		if read := All[i].Read; read != nil {
			if k, bad := read(p, at); bad != nil {
				return Params{}, bad
			} else if k != nil {
				return *k, nil
			}
		}
	}
	return Params{}, nil
}

// ReadParams reads kv_transfer_params into a connector's fields. It returns false where the request has none, or where
// own lists the connector's fields and the request has none of them.
func ReadParams(p *openai.Sampling, into any, own ...string) (bool, *openai.Error) {
	raw := p.KVTransferParams
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return false, nil
	}
	stands := func(name string) bool { return bytes.Contains(raw, []byte(name)) }
	if len(own) > 0 && !slices.ContainsFunc(own, stands) && !stands(`\`) { // it may escape a letter of a name
		return false, nil
	}
	bad := openai.Decode(raw, into)
	if bad != nil {
		bad.Param = "kv_transfer_params"
		bad.Message = "kv_transfer_params: " + bad.Message
	}
	return bad == nil, bad
}

func badParam(field, format string, args ...any) (*Params, *openai.Error) {
	return nil, openai.Errorf(400, "kv_transfer_params", "kv_transfer_params.%s: %s.", field,
		fmt.Sprintf(format, args...))
}

// Remote names a KV cache that another server has or will have.
type Remote struct {
	// Host and Port are the address of that server's side channel.
	Host string
	Port int
	// EngineID and Blocks name an existing cache. With a Key, EngineID may be empty.
	EngineID string
	Blocks   Blocks
	// Key names a cache that may not be computed yet. Both servers received the key with the request.
	Key string
	// Tokens is the length of the cached prefix, in tokens; 0 is the whole prompt.
	Tokens int
}

// Address returns the server's address as host:port.
func (r *Remote) Address() string { return Address(r.Host, r.Port) }

// Address returns host:port, with brackets around an IPv6 address.
func Address(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// Blocks are the numbers of a cache's blocks, in sequence. They count modulo BlockNumbers. A cache has far fewer blocks
// than that, so no number repeats while a server holds the cache.
type Blocks struct{ First, Count int }

// BlockNumbers is the count of different block numbers.
const BlockNumbers = 1 << 30

// Numbers returns all numbers, in order.
func (b Blocks) Numbers() []int {
	list := make([]int, b.Count)
	for i := range list {
		list[i] = (b.First + i) % BlockNumbers
	}
	return list
}

// BlocksOf reads a list of numbers. No server holds blocks whose numbers are not in sequence, so for such a list
// BlocksOf returns blocks that no server has.
func BlocksOf(numbers []int) Blocks {
	for i, n := range numbers {
		if n != (numbers[0]+i)%BlockNumbers {
			return Blocks{First: -1, Count: len(numbers)}
		}
	}
	if len(numbers) == 0 {
		return Blocks{}
	}
	return Blocks{numbers[0], len(numbers)}
}

// MaxRemoteBlocks limits the block ids that a request may name.
const MaxRemoteBlocks = 1 << 20

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
		if len(into) > MaxRemoteBlocks {
			return nil, fmt.Errorf("at most %d block ids", MaxRemoteBlocks)
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
