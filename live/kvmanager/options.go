package kvmanager

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// Options configure a Manager. DefaultOptions returns the usual ones.
type Options struct {
	// ZMQBind is the endpoint that model servers send their events to; "" means none.
	ZMQBind string
	// HTTPAddress is the API's host:port.
	HTTPAddress string
	// Pods are publishers to dial, besides those that connect to ZMQBind.
	Pods []Pod
	// ReplayPort is the replay port of publishers that connect to ZMQBind, at the address that they connect from; 0
	// means that they have none.
	ReplayPort int

	Index kvindex.Config
	Feed  kvfeed.Config
	// Lenient accepts msgpack that llm-d-router would refuse (kvcodec.Decoder).
	Lenient bool
	// Model is the model of requests that name none; "" means the only model that has events, if there is just one.
	Model string
	// Tokenizer turns prompts into the engines' tokens; nil means tokens.Packed.
	Tokenizer tokens.Tokenizer

	MaxBodyBytes int64 // of a request; 0 means 8 MiB
	// MemoryLimit is the process's memory limit in bytes, like a container's. Failed receives an OutOfMemoryError
	// when the process exceeds it. 0 means no limit.
	MemoryLimit int64
	// OnMessage, if not nil, gets a report on every message after it took effect.
	OnMessage func(kvevents.Report)
	Log       *slog.Logger
}

// Pod is a publisher to dial.
type Pod struct {
	Name     kv.Topic
	Endpoint string // tcp://host:port of its PUB socket
	Replay   string // of its ROUTER socket; "" if it has none
}

// ParsePod reads "pod@model=tcp://host:5557" with an optional
// ",tcp://host:5558" for replays. The model may be left out.
func ParsePod(s string) (Pod, error) {
	name, endpoints, ok := strings.Cut(s, "=")
	if !ok || name == "" || endpoints == "" {
		return Pod{}, fmt.Errorf("pod %q: expected POD[@MODEL]=tcp://HOST:PORT[,tcp://HOST:REPLAYPORT]", s)
	}
	var p Pod
	p.Name.Pod, p.Name.Model, _ = strings.Cut(name, "@")
	p.Endpoint, p.Replay, _ = strings.Cut(endpoints, ",")
	return p, nil
}

// DefaultOptions returns document 003's deployment, on the loopback address.
func DefaultOptions() Options {
	return Options{
		ZMQBind:     "tcp://127.0.0.1:5555",
		HTTPAddress: "127.0.0.1:8080",
		Index: kvindex.Config{
			// 16 tokens also match the events of engines with blocks of 64 tokens. With a larger value, an engine
			// with smaller blocks would never match.
			Hasher: kv.Hasher{BlockTokens: 16},
			TTL:    3600 * machine.Second, MaxBlocks: 10000, CleanupInterval: 300 * machine.Second,
			StaleAfter: 300 * machine.Second, ForgetAfter: 3600 * machine.Second, MaxPods: kvevents.DefaultMaxPods,
		},
	}
}

// FromEnv sets the options from document 003's environment variables: ZMQ_BIND_ADDRESS, HTTP_PORT, INDEX_TTL,
// INDEX_MAX_BLOCKS, INDEX_CLEANUP_INTERVAL, VLLM_KV_BLOCK_SIZE, VLLM_KV_EVENT_ENABLED, VLLM_KV_EVENT_ZMQ_ENDPOINT and
// VLLM_KV_EVENT_INTERVAL_MS. An error names the variable. LogLevel reads LOG_LEVEL.
func (o *Options) FromEnv(lookup func(string) (string, bool)) error {
	bound := false
	for _, v := range []struct {
		name string
		set  func(string) error
	}{
		{"ZMQ_BIND_ADDRESS", func(s string) error { o.ZMQBind, bound = s, true; return nil }},
		{"VLLM_KV_EVENT_ZMQ_ENDPOINT", func(s string) error {
			// This is the endpoint that engines connect to. The manager listens on its port, unless ZMQ_BIND_ADDRESS
			// is set. With several managers, the first one counts.
			s, _, _ = strings.Cut(s, ",")
			_, port, err := net.SplitHostPort(strings.TrimPrefix(s, "tcp://"))
			if err == nil && !bound {
				o.ZMQBind = "tcp://127.0.0.1:" + port
			}
			return err
		}},
		{"VLLM_KV_EVENT_ENABLED", func(s string) error {
			on, err := strconv.ParseBool(s)
			if err == nil && !on {
				o.ZMQBind = ""
			}
			return err
		}},
		{"VLLM_KV_EVENT_INTERVAL_MS", func(s string) error {
			ms, err := number(s, 1, 60_000)
			// A message that follows another may arrive one interval late.
			o.Feed.Wait = max(100, machine.Time(ms)) * machine.Millisecond
			return err
		}},
		{"HTTP_PORT", func(s string) error {
			port, err := number(s, 0, 65535)
			host, _, _ := net.SplitHostPort(o.HTTPAddress)
			o.HTTPAddress = net.JoinHostPort(host, strconv.Itoa(port))
			return err
		}},
		{"INDEX_TTL", func(s string) error {
			err := seconds(&o.Index.TTL)(s)
			o.Index.ForgetAfter = o.Index.TTL
			return err
		}},
		{"INDEX_CLEANUP_INTERVAL", seconds(&o.Index.CleanupInterval)},
		{"INDEX_MAX_BLOCKS", integer(&o.Index.MaxBlocks, 0, 1<<31)},
		{"VLLM_KV_BLOCK_SIZE", integer(&o.Index.Hasher.BlockTokens, 1, 1<<16)},
	} {
		if s, ok := lookup(v.name); ok && s != "" {
			if err := v.set(s); err != nil {
				return fmt.Errorf("%s=%q: %w", v.name, s, err)
			}
		}
	}
	return nil
}

// LogLevel reads LOG_LEVEL: debug, info, warn or error, in any case.
func LogLevel(s string) (slog.Level, error) {
	var l slog.Level
	if strings.EqualFold(s, "warning") {
		s = "warn"
	}
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return l, fmt.Errorf("LOG_LEVEL=%q: expected debug, info, warn or error", s)
	}
	return l, nil
}

// seconds parses whole seconds, as in the document, or a duration such as "90s" or "1h".
func seconds(to *machine.Time) func(string) error {
	return func(s string) error {
		if n, err := strconv.ParseUint(s, 10, 31); err == nil {
			*to = machine.Time(n) * machine.Second
			return nil
		}
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("expected seconds such as 3600, or a duration such as 1h")
		}
		*to = machine.FromDuration(d)
		return nil
	}
}

func integer(to *int, low, high int) func(string) error {
	return func(s string) (err error) {
		*to, err = number(s, low, high)
		return err
	}
}

func number(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("expected a whole number from %d to %d", low, high)
	}
	return n, nil
}
