package parts

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/kvmanager"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// KVManager runs the KV-cache manager alone. It reads document 003's environment variables; flags take precedence.
type KVManager struct {
	ZMQBind    string     `placeholder:"tcp://HOST:PORT" help:"Where model servers send their KV events to; none for nowhere (ZMQ_BIND_ADDRESS, tcp://127.0.0.1:5555)."`
	Listen     string     `default:"127.0.0.1" placeholder:"IP" help:"Address of the API."`
	Port       int        `placeholder:"N" help:"Port of the API (HTTP_PORT, 8080)."`
	HTTP       string     `hidden:"" help:"--listen and --port in one, as they were before."`
	Pod        []string   `sep:"none" placeholder:"POD@MODEL=ENDPOINT" help:"A model server to dial: ip:port@model=tcp://ip:5557, with ,tcp://ip:5558 for replay. Repeatable."`
	ReplayPort int        `placeholder:"PORT" help:"Port on which connecting model servers replay missed events."`
	BlockSize  int        `placeholder:"TOKENS" help:"Tokens per block of the index (VLLM_KV_BLOCK_SIZE, 16)."`
	HashSeed   string     `placeholder:"SEED" help:"Seed of block keys, as the endpoint picker's hashSeed."`
	Model      string     `placeholder:"NAME" help:"Model of requests and events that name none."`
	Tokenizer  string     `placeholder:"FILE" help:"A tokenizer.json for text prompts, else four bytes are a token."`
	Lenient    bool       `help:"Accept events in forms that llm-d-router refuses."`
	Memory     size.Bytes `name:"memory-limit" placeholder:"BYTES" help:"Memory limit, such as 2Gi, as a container's: above it the manager ends as OOMKilled."`
	LogLevel   string     `fromenv:"LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error."`

	// Beside, if not nil, gets the running manager.
	Beside func(m *kvmanager.Manager) error `kong:"-"`
}

func (KVManager) Help() string {
	return `The KV-cache manager of document 003 (docs/documents.md#document-003) by itself: it receives KV events over
ZMQ (vLLM's msgpack or the document's JSON), keeps an index of the blocks of each pod, and scores pods over
HTTP.

  windtunnel kv-manager
  ZMQ_BIND_ADDRESS=tcp://0.0.0.0:5555 INDEX_TTL=1800 windtunnel kv-manager --listen 0.0.0.0 --port 8080
  windtunnel kv-manager --pod 10.0.0.7:8000@llama=tcp://10.0.0.7:5557,tcp://10.0.0.7:5558

A model server beside it, and questions:

  VLLM_KV_EVENT_ENABLED=true VLLM_KV_EVENT_ZMQ_ENDPOINT=tcp://127.0.0.1:5555 \
    windtunnel modelserver -- --enable-kv-events
  curl -d '{"prompt":"Tell me about machine learning","candidate_pods":["127.0.0.1:8000"]}' localhost:8080/api/v1/score
  curl localhost:8080/api/v1/cache/state
  curl localhost:8080/api/v1/cache/pod/127.0.0.1:8000
  curl localhost:8080/api/v1/cache/block/sha256:00000000000004d2        # which pods hold it
  curl localhost:8080/metrics                                           # /healthz and /readyz, too

Environment, with the default values:

  ZMQ_BIND_ADDRESS            tcp://127.0.0.1:5555   where model servers send their events to
  HTTP_PORT                   8080                   port of the API
  LOG_LEVEL                   info                   debug, info, warn or error
  INDEX_TTL                   3600                   seconds until an unused block or silent pod expires
  INDEX_MAX_BLOCKS            10000                  different blocks; the least recently used goes first; 0 is no limit
  INDEX_CLEANUP_INTERVAL      300                    seconds between checks of the age of blocks
  VLLM_KV_BLOCK_SIZE          16                     tokens per block of the index; no larger than the engines'
  VLLM_KV_EVENT_ENABLED       true                   false binds no socket for events
  VLLM_KV_EVENT_ZMQ_ENDPOINT                         the model servers' value, whose first port is bound
  VLLM_KV_EVENT_INTERVAL_MS   100                    how late a message that arrives out of order may be

For high availability, several managers each receive all events: VLLM_KV_EVENT_ZMQ_ENDPOINT of the model
servers names all of them, separated by commas.

The manager requests missed messages at --replay-port, on the address that a pod connects from, or at the
address in --pod. Without such an address it drops all blocks of the pod.`
}

// Run serves until an interruption.
func (c *KVManager) Run(o *console.Console) error {
	opts, err := c.options(o)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if c.Tokenizer != "" {
		text, err := files.Read(c.Tokenizer, tokens.MaxFileBytes)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		if opts.Tokenizer, err = tokens.ParseTokenizerJSON(text); err != nil {
			return exit.Errorf(exit.Input, "%s: %w", c.Tokenizer, err)
		}
	}
	ctx, stop := o.Context()
	defer stop()
	opts.MemoryLimit = int64(c.Memory)
	m, err := kvmanager.Start(opts)
	if err != nil {
		return exit.ByCause(exit.Usage, err)
	}
	fmt.Fprintf(o.Stderr, "windtunnel kv-manager: events on %s, API on http://%s\n", m.ZMQEndpoint(), m.HTTPAddress())
	if c.Beside != nil {
		if err := c.Beside(m); err != nil {
			m.Close()
			return exit.ByCause(exit.Input, err)
		}
	}
	return serve.Until(ctx, 0, m.Failed(), m.Stop)
}

// options returns the defaults, changed by the environment and then by flags.
func (c *KVManager) options(o *console.Console) (kvmanager.Options, error) {
	opts := kvmanager.DefaultOptions()
	if err := opts.FromEnv(o.Env); err != nil {
		return opts, err
	}
	level, err := kvmanager.LogLevel(c.LogLevel)
	if err != nil {
		return opts, err
	}
	opts.Log = kvmanager.NewLogger(o.Stderr, level)
	switch {
	case c.ZMQBind == "none":
		opts.ZMQBind = ""
	case c.ZMQBind != "":
		opts.ZMQBind = c.ZMQBind
	}
	if err := c.listen(&opts, o); err != nil {
		return opts, err
	}
	if err := cmp.Or(within("--block-size", c.BlockSize, 0, 1<<16),
		within("--replay-port", c.ReplayPort, 0, maxPort)); err != nil {
		return opts, err
	}
	if c.BlockSize > 0 {
		opts.Index.Hasher.BlockTokens = c.BlockSize
	}
	opts.Index.Hasher.Seed, opts.Model, opts.Lenient = c.HashSeed, c.Model, c.Lenient
	opts.ReplayPort = c.ReplayPort
	for _, text := range c.Pod {
		pod, err := kvmanager.ParsePod(strings.TrimSpace(text))
		if err != nil {
			return opts, fmt.Errorf("--pod: %w", err)
		}
		opts.Pods = append(opts.Pods, pod)
	}
	if opts.ZMQBind == "" && len(opts.Pods) == 0 {
		opts.Log.Warn("no KV events will come: neither a bound socket nor a --pod", "component", "main")
	}
	return opts, nil
}

// listen sets the API's address.
func (c *KVManager) listen(opts *kvmanager.Options, o *console.Console) error {
	if c.HTTP != "" {
		if _, _, err := net.SplitHostPort(c.HTTP); err != nil {
			return fmt.Errorf("--http %q: expected HOST:PORT: %w", c.HTTP, err)
		}
		oldFlag(o, "--http", "--listen and --port")
		opts.HTTPAddress = c.HTTP
		return nil
	}
	_, port, err := net.SplitHostPort(opts.HTTPAddress)
	if err != nil {
		return err
	}
	if err := within("--port", c.Port, 0, maxPort); err != nil {
		return err
	}
	if c.Port > 0 {
		port = strconv.Itoa(c.Port)
	}
	opts.HTTPAddress = net.JoinHostPort(c.Listen, port)
	return nil
}
