package dropin

import (
	"cmp"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Publish makes servers with these flags send their KV events. A server's topic names its address and port, as llm-d's
// engines do; document 003's form names the PodName, if there is one.
func (c *Config) Publish(o *modelserver.Options) {
	if c.KVEvents == nil {
		return
	}
	hosts := map[string]int{}
	for i := range o.Servers {
		x := &o.Servers[i]
		host, _, _ := net.SplitHostPort(x.Listen)
		x.KVEvents = publisher(c.KVEvents, host, x.PodName, &x.Engine, hosts[host], o.Logger)
		hosts[host]++
	}
}

// documentHeartbeat keeps an idle server healthy for document 003's KV-Cache Manager, which considers a server
// unhealthy after minutes of silence.
const documentHeartbeat = 30 * time.Second

// publisher returns the publisher of a server that listens on a host. If several servers share an address, such as the
// ranks of data parallelism, each adds its rank to the ports, as in vLLM.
func publisher(e *KVEvents, host, pod string, eng *engine.Config, rank int, log *slog.Logger) func(model,
	endpoint string) (modelserver.KVPublisher, error) {
	return func(model, endpoint string) (modelserver.KVPublisher, error) {
		if e.Document {
			endpoint = cmp.Or(pod, endpoint)
		}
		o := kvevents.PublisherOptions{
			Topic: kv.Topic{Pod: endpoint, Model: model}, TopicText: e.Topic,
			Replay: higher(own(e.Replay, host), rank), Interval: time.Duration(e.IntervalMillis) * time.Millisecond,
			BatchEvents: e.BatchEvents, ReplayMessages: e.Buffer, QueueMessages: e.Queue, DataParallelRank: rank,
			Log: log,
		}
		if t, err := kv.ParseTopic(e.Topic); err == nil && t.Pod != "" {
			o.Topic = t
		}
		switch {
		case e.Document:
			o.Format, o.Heartbeat = kvevents.JSON, documentHeartbeat
			o.BlockBytes, o.CapacityBlocks = eng.KVBytesPerToken*int64(cmp.Or(eng.BlockSize, kv.DefaultBlockTokens)),
				eng.NumGPUBlocks
		case e.Map:
			o.Format = kvevents.MsgpackMap
		}
		if e.Connect {
			o.Connect = strings.Split(e.Endpoint, ",") // managers, separated by commas
		} else {
			o.Bind = higher(own(e.Endpoint, host), rank)
		}
		p, err := kvevents.NewPublisher(o)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// higher adds a rank to an endpoint's port.
func higher(bind string, rank int) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(bind, "tcp://"))
	number, bad := strconv.Atoi(port)
	if err != nil || bad != nil || number == 0 {
		return bind // empty, any port, or an endpoint that the publisher will refuse
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(number+rank))
}

// own replaces a wildcard host by the host that a server listens on, so that servers on different addresses do not
// collide on one port.
func own(bind, listen string) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(bind, "tcp://"))
	if bind == "" || err != nil || !serve.Wildcard(host) {
		return bind
	}
	return "tcp://" + net.JoinHostPort(listen, port)
}
