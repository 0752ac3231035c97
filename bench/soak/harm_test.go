package soak

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// limit bounds every hostile connection.
const limit = 3 * time.Second

// harm does one thing that no client should do.
func (r *rig) harm(rng *rand.Rand) {
	l := r.ports[rng.IntN(len(r.ports))]
	http := []string{r.Gateway.Addr, r.Endpoints[rng.IntN(len(r.Endpoints))]}[rng.IntN(2)]
	switch rng.IntN(9) {
	case 0:
		r.send(l, noise(rng), rng.IntN(2) == 0)
	case 1:
		sendRaw(http, post(mutated(rng, chat(rng))), true, rng.IntN(2) == 0)
	case 2:
		sendRaw(http, post(chat(rng), headers(rng)...), true, false)
	case 3: // a body that ends early
		text := post(chat(rng))
		sendRaw(http, text[:len(text)-1-rng.IntN(30)], false, rng.IntN(2) == 0)
	case 4: // an answer that is not read to its end
		sendRaw(http, post(chat(rng)), false, true)
	case 5:
		sendRaw(http, post(pull(rng)), true, false)
	case 6:
		sendRaw(http, fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			pick(rng, "GET", "PUT", "DELETE", "OPTIONS", "BREW"), path(rng)), true, false)
	case 7: // HTTP/2: frames of streams that were never opened, and resets
		text := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		for range rng.IntN(50) {
			body := noise(rng)[:rng.IntN(10)]
			text = append(text, 0, 0, byte(len(body)), byte(rng.IntN(10)), byte(rng.IntN(256)))
			text = binary.BigEndian.AppendUint32(text, uint32(rng.IntN(9)))
			text = append(text, body...)
		}
		r.send(l, text, true)
	case 8: // ZMQ's greeting, and then something that is not a frame
		text := append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"), make([]byte, 48)...)
		r.send(l, append(text, noise(rng)...), rng.IntN(2) == 0)
	}
}

// send writes text to a listener, whatever its protocol is.
func (r *rig) send(l listener, text []byte, reset bool) {
	if l.Part == "gateway-admin" {
		return // Envoy's admin port, which would shut Envoy down
	}
	sendRaw(l.Address, text, false, reset)
}

// sendRaw writes text to an address, reads the answer, and ends the connection: with whole after the answer's end,
// otherwise after its first bytes; with a reset or properly.
func sendRaw(address string, text []byte, whole, reset bool) {
	c, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	if !whole {
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	}
	if t, ok := c.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	if _, err := c.Write(text); err != nil {
		return
	}
	if whole {
		_, _ = io.Copy(io.Discard, c)
		return
	}
	_, _ = c.Read(make([]byte, 100))
}

func pick(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }

func noise(rng *rand.Rand) []byte {
	out := make([]byte, 10+rng.IntN(500))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

func path(rng *rand.Rand) string {
	return pick(rng, "/", "/v1/models", "/metrics", "/v1/responses/resp_1", "/debug/decisions", "/debug/pprof/",
		"/admin/crash?", "/reset_prefix_cache", "/sleep", "/%00", "/v1/"+strings.Repeat("a/", 200),
		"/api/v1/cache/state", "/tokenize", "/../../etc/passwd")
}

func post(body string, head ...string) []byte {
	var b bytes.Buffer
	b.WriteString("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " +
		"application/json\r\n")
	for i := 0; i+1 < len(head); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", head[i], head[i+1])
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

func chat(rng *rand.Rand) string {
	switch rng.IntN(6) {
	case 0:
		return fmt.Sprintf(`{"model":"m%d","messages":[{"role":"user","content":"hi"}]}`, rng.Uint32())
	case 1:
		return `{"model":"m","messages":` + strings.Repeat("[", 5000) + `}`
	case 2:
		return fmt.Sprintf(`{"model":"m","n":%d,"max_tokens":%d,"messages":[{"role":"user","content":"x"}],`+
			`"tools":[{"type":"function","function":{"name":"f","parameters":%s}}],"tool_choice":"required"}`,
			rng.IntN(200), rng.IntN(1<<30),
			strings.Repeat(`{"type":"array","minItems":9,"items":`, 12)+`{"type":"string"}`+strings.Repeat("}", 12))
	case 3:
		return `{"model":"m","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"go on"}]}`
	case 4:
		return `{"model":"m","prompt_cache_key":"` + strings.Repeat("k", rng.IntN(9000)) +
			`","messages":[{"role":"user","content":"\ud800"}]}`
	}
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
}

// mutated changes a few bytes.
func mutated(rng *rand.Rand, text string) string {
	b := []byte(text)
	for range 1 + rng.IntN(5) {
		b[rng.IntN(len(b))] = byte(rng.Uint32())
	}
	return string(b)
}

// headers returns names and values that parts of the system read.
func headers(rng *rand.Rand) (out []string) {
	value := func() string {
		return pick(rng, "\xff", fmt.Sprint(rng.Uint64()), strings.Repeat("z", 2000), "10.0.0.1:1,127.0.0.1:1", "-1",
			"", "true", "\u200b", "nobody.invalid:80")
	}
	for range 1 + rng.IntN(4) {
		out = append(out, pick(rng, "x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id",
			"x-gateway-inference-objective", "x-llm-d-inference-objective", "x-request-id", "x-session-token",
			"x-prefiller-host-port", "x-encoder-hosts-ports", "x-gateway-destination-endpoint",
			"x-gateway-destination-endpoint-subset", "x-llm-d-explain", "traceparent", "accept", "authorization"),
			value())
	}
	if rng.IntN(20) == 0 {
		for i := range 2000 {
			out = append(out, fmt.Sprint("x-", i), "v")
		}
	}
	return out
}

// pull makes the model server fetch a KV cache from an address of the client's choice.
func pull(rng *rand.Rand) string {
	return fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],`+
		`"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"e%d","remote_block_ids":[[%d]],`+
		`"remote_host":%q,"remote_port":%d}}`,
		rng.Uint32(), rng.Uint32(), pick(rng, "127.0.0.1", "10.255.255.1", "nobody.invalid", "::"), rng.IntN(70000))
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
