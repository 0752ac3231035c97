package kvevents

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// Format is the encoding of a Publisher's payloads.
type Format uint8

// The formats of publishers in use.
const (
	Msgpack    Format = iota // vLLM: an event is an array
	MsgpackMap               // newer vLLM: an event is a map with "type"
	JSON                     // document 003
)

// PublisherOptions configure a Publisher. Bind or Connect is required.
type PublisherOptions struct {
	Topic kv.Topic
	// TopicText replaces Topic on the wire. Topic then only names the pod in document 003's JSON.
	TopicText string
	// Bind is the endpoint that subscribers connect to, such as tcp://127.0.0.1:5557.
	Bind string
	// Connect lists subscribers to connect to (VLLM_KV_EVENT_ZMQ_ENDPOINT).
	Connect []string
	// Replay is the endpoint that replays missed messages; "" means none.
	Replay string

	Format Format
	// Interval is how long events wait so that one batch carries several; 0 means 100 ms (VLLM_KV_EVENT_INTERVAL_MS),
	// and a negative value means no wait.
	Interval time.Duration
	// Heartbeat is the time without a message after which an empty batch is sent; 0 means never.
	Heartbeat time.Duration
	// BatchEvents is how many events make a batch that is sent without waiting; 0 means 1,024.
	BatchEvents int
	// ReplayMessages and ReplayBytes bound the messages kept for replays; 0 means 10,000 (vLLM's buffer_steps) and 64
	// MiB.
	ReplayMessages int
	ReplayBytes    int
	// QueueMessages bounds the messages that wait for one slow subscriber. Further messages are dropped for that
	// subscriber, as at ZMQ's high-water mark. 0 means 4,096.
	QueueMessages int
	// BlockBytes and CapacityBlocks are the size of a block and of the cache. JSON events carry them
	// (cache_size_bytes, num_gpu_blocks), so that a KV-Cache Manager can report sizes and utilization. 0 leaves them
	// out.
	BlockBytes     int64
	CapacityBlocks int
	// DataParallelRank is the third element of a batch; -1 encodes nil.
	DataParallelRank int
	// OnSend, if not nil, gets each message's events before they are sent, in order. It must not call the publisher
	// or keep the events.
	OnSend func(seq uint64, events []kv.Event)

	Log *slog.Logger
}

// Publisher sends KV events. All methods are safe for concurrent use.
type Publisher struct {
	opts         PublisherOptions
	topic        []byte
	cancel       context.CancelFunc
	pub          peers
	replays      peers
	addr, replay net.Addr
	wake         chan struct{}
	done         chan struct{}
	serving      sync.WaitGroup // connected subscribers

	entry   sync.Mutex // guards the queue; Publish takes only this lock while fewer than maxQueued events wait
	queue   []kv.Event
	waiting int  // number of events in queue and pending
	closed  bool // changes with mu held too

	mu       sync.Mutex     // held while encoding
	pending  []kv.Event     // events taken from queue
	spare    []kv.Event     // memory that queue uses next
	text     []byte         // buffer of send
	copies   kvcodec.Copies // used by the JSON format
	seq      uint64
	last     time.Time
	buffer   []published // oldest first
	bytes    int
	subs     map[*outbox]struct{}
	dropped  uint64
	wentDown sync.Once
}

type published struct {
	seq     uint64
	payload []byte
}

// NewPublisher starts a publisher. Close stops it.
func NewPublisher(opts PublisherOptions) (*Publisher, error) {
	if opts.Bind == "" && len(opts.Connect) == 0 {
		return nil, errors.New("a KV event publisher needs an endpoint to bind or to connect to")
	}
	opts.BatchEvents = cmp.Or(max(opts.BatchEvents, 0), 1024)
	opts.ReplayMessages = cmp.Or(max(opts.ReplayMessages, 0), 10000)
	opts.ReplayBytes = cmp.Or(max(opts.ReplayBytes, 0), 64<<20)
	opts.QueueMessages = cmp.Or(max(opts.QueueMessages, 0), 4096)
	opts.Interval = cmp.Or(opts.Interval, 100*time.Millisecond)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{opts: opts, topic: []byte(cmp.Or(opts.TopicText, opts.Topic.String())), cancel: cancel,
		wake: make(chan struct{}, 1),
		done: make(chan struct{}), subs: map[*outbox]struct{}{}, last: time.Now()}
	p.pub = peers{kind: zmq4.Pub, maxMessage: 1 << 16, log: opts.Log, serve: p.serve}
	p.replays = peers{kind: zmq4.Router, maxMessage: 1 << 16, log: opts.Log, serve: p.serveReplay}
	go p.run(ctx)
	err := p.open(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Publisher) open(ctx context.Context) (err error) {
	if p.opts.Bind != "" {
		if p.addr, err = p.pub.listen(ctx, p.opts.Bind); err != nil {
			return err
		}
	}
	if p.opts.Replay != "" {
		if p.replay, err = p.replays.listen(ctx, p.opts.Replay); err != nil {
			return err
		}
	}
	own := cmp.Or(p.addr, p.replay)
	for _, endpoint := range p.opts.Connect {
		if err := p.pub.dial(ctx, endpoint, loopbackOf(own, endpoint)); err != nil {
			return err
		}
	}
	return nil
}

// Endpoint returns the bound endpoint with its actual port, or "" if the publisher only connects.
func (p *Publisher) Endpoint() string { return endpointOf(p.addr) }

// ReplayEndpoint returns the bound replay endpoint, or "" if there is none.
func (p *Publisher) ReplayEndpoint() string { return endpointOf(p.replay) }

func endpointOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return "tcp://" + a.String()
}

// maxQueued is how many events may wait to be encoded. At this number, Publish itself sends full batches.
const maxQueued = 1 << 14

// Publish queues an event and takes ownership of its slices. It waits only when events come faster than they can be
// encoded. After Close it does nothing.
func (p *Publisher) Publish(e kv.Event) {
	p.entry.Lock()
	if p.closed {
		p.entry.Unlock()
		return
	}
	p.queue = append(p.queue, e)
	p.waiting++
	wake, full := p.waiting == 1 || p.waiting%p.batch() == 0, len(p.queue) >= maxQueued
	p.entry.Unlock()
	if wake {
		pause.Wake(p.wake)
	}
	if full {
		p.drain(false)
	}
}

// batch returns how many events are sent at once.
func (p *Publisher) batch() int {
	if p.opts.Interval < 0 {
		return 1
	}
	return p.opts.BatchEvents
}

// Flush sends all waiting events at once.
func (p *Publisher) Flush() { p.drain(true) }

func (p *Publisher) drain(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flush(all) {
		pause.Wake(p.wake)
	}
}

// flush sends waiting events in full batches, and with all set also the rest. It reports whether events still wait.
// The caller holds mu.
func (p *Publisher) flush(all bool) (more bool) {
	p.entry.Lock()
	queue := p.queue
	p.queue = p.spare
	p.entry.Unlock()
	p.pending = append(p.pending, queue...)
	clear(queue)
	p.spare = queue[:0]
	rest := p.pending
	for len(rest) >= p.batch() || all && len(rest) > 0 {
		n := min(p.batch(), len(rest))
		p.send(rest[:n:n])
		rest = rest[n:]
	}
	p.entry.Lock()
	defer p.entry.Unlock()
	p.waiting += len(rest) - len(p.pending)
	left := copy(p.pending, rest)
	clear(p.pending[left:])
	p.pending = p.pending[:left]
	return p.waiting > 0
}

// send sends one batch, which may be empty. The caller holds mu.
func (p *Publisher) send(events []kv.Event) {
	now := time.Now()
	batch := kv.Batch{At: float64(now.UnixMicro()) / 1e6, Events: events, DataParallelRank: p.opts.DataParallelRank}
	text := p.text[:0]
	switch p.opts.Format {
	case JSON:
		if len(batch.Events) == 0 || p.seq == 0 && p.opts.CapacityBlocks > 0 {
			batch.Events = slices.Insert(batch.Events, 0, kv.Event{Kind: kv.Heartbeat, Capacity: p.opts.CapacityBlocks})
		}
		for i := range batch.Events {
			if e := &batch.Events[i]; e.Kind == kv.Stored && e.BlockBytes == 0 {
				e.BlockBytes = p.opts.BlockBytes
			}
		}
		known := batch
		known.Events = nil
		for _, e := range batch.Events {
			if e, any := p.copies.Last(e); any {
				known.Events = append(known.Events, e)
			}
		}
		if len(known.Events) == 0 {
			return
		}
		var err error
		if text, err = kvcodec.AppendJSON(text, known, p.opts.Topic.Pod); err != nil {
			p.opts.Log.Error("cannot encode KV events", "error", err)
			return
		}
	case MsgpackMap:
		text = kvcodec.AppendBatch(text, batch, kvcodec.MapForm)
	default:
		text = kvcodec.AppendBatch(text, batch, kvcodec.ArrayForm)
	}
	p.text = text
	payload := bytes.Clone(text) // kept for replays, without the spare capacity of text
	if p.opts.Log.Enabled(context.Background(), slog.LevelInfo) {
		p.opts.Log.Info("KV_EVENT published", "pod_id", p.opts.Topic.Pod, "sequence", p.seq, "events",
			countKinds(batch.Events), "bytes", len(payload), "subscribers", len(p.subs))
	}
	if p.opts.OnSend != nil {
		p.opts.OnSend(p.seq, batch.Events)
	}
	p.last = now
	m := published{p.seq, payload}
	p.seq++
	p.buffer = append(p.buffer, m)
	p.bytes += len(payload)
	for len(p.buffer) > p.opts.ReplayMessages || p.bytes > p.opts.ReplayBytes && len(p.buffer) > 1 {
		p.bytes -= len(p.buffer[0].payload)
		p.buffer[0] = published{}
		p.buffer = p.buffer[1:]
	}
	for o := range p.subs {
		if !o.wants(p.topic) {
			continue
		}
		select {
		case o.messages <- m:
		default:
			p.dropped++
		}
	}
}

// countKinds counts events by the names that document 003 gives them, as "stored=2,removed=1".
func countKinds(events []kv.Event) string {
	var n [kv.Heartbeat + 1]int
	for i := range events {
		n[min(events[i].Kind, kv.Heartbeat)]++
	}
	var b strings.Builder
	for kind, n := range n {
		if n > 0 {
			fmt.Fprintf(&b, ",%s=%d", kv.Kind(kind).Document(), n)
		}
	}
	return strings.TrimPrefix(b.String(), ",")
}

// run sends full batches at once, and the rest when their interval is over.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)
	var beat, due <-chan time.Time
	if p.opts.Heartbeat > 0 {
		t := time.NewTicker(p.opts.Heartbeat)
		defer t.Stop()
		beat = t.C
	}
	for {
		all, beaten := false, false
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-due:
			all, due = true, nil
		case <-beat:
			beaten = true
		}
		p.mu.Lock()
		silent := beaten && p.silent()
		more := p.flush(all || silent)
		if silent && p.silent() {
			p.send(nil)
		}
		p.mu.Unlock()
		if more && due == nil {
			due = time.After(p.opts.Interval)
		}
	}
}

// silent reports whether a heartbeat is due. The caller holds mu.
func (p *Publisher) silent() bool { return !p.closed && time.Since(p.last) >= p.opts.Heartbeat }

// PublisherStats are a publisher's counts.
type PublisherStats struct {
	Messages    uint64 // sent so far; the next one's sequence number
	Dropped     uint64 // missed by slow subscribers
	Subscribers int    // connected and subscribed to the topic
}

// Stats returns the current counts.
func (p *Publisher) Stats() PublisherStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PublisherStats{Messages: p.seq, Dropped: p.dropped}
	for o := range p.subs {
		if o.wants(p.topic) {
			s.Subscribers++
		}
	}
	return s
}

// Close sends all waiting events, gives subscribers a second to receive them, and stops the publisher.
func (p *Publisher) Close() {
	p.wentDown.Do(func() {
		p.mu.Lock()
		p.entry.Lock()
		p.closed = true
		p.entry.Unlock()
		p.flush(true)
		for o := range p.subs {
			delete(p.subs, o)
			close(o.messages) // the writer sends what is left, then closes the connection
		}
		p.mu.Unlock()
		linger := time.AfterFunc(time.Second, p.cancel)
		p.serving.Wait()
		linger.Stop()
		p.cancel()
		<-p.done
		p.pub.wait.Wait()
		p.replays.wait.Wait()
	})
}
