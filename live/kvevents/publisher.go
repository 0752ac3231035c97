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
)

// Format is how a Publisher writes its payloads.
type Format uint8

// The formats that are in use.
const (
	Msgpack    Format = iota // vLLM: an event is an array
	MsgpackMap               // newer vLLM: an event is a map with "type"
	JSON                     // document 003
)

// PublisherOptions shape a Publisher. Bind or Connect must be given.
type PublisherOptions struct {
	Topic kv.Topic
	// TopicText is what travels as the topic in place of Topic, which then names
	// the pod in document 003's JSON alone.
	TopicText string
	// Bind is where subscribers come to, like tcp://127.0.0.1:5557.
	Bind string
	// Connect are subscribers to go to (VLLM_KV_EVENT_ZMQ_ENDPOINT).
	Connect []string
	// Replay is where missed messages can be asked for; "" for nowhere.
	Replay string

	Format Format
	// Interval is how long events wait for others to travel with; 0 means
	// 100 ms (VLLM_KV_EVENT_INTERVAL_MS), below 0 means not at all.
	Interval time.Duration
	// Heartbeat sends an empty batch after this much silence; 0 never.
	Heartbeat time.Duration
	// BatchEvents sends a batch at once when it has this many events; 0 means
	// 1,024.
	BatchEvents int
	// ReplayMessages and ReplayBytes bound what can be replayed; 0 means
	// 10,000 (vLLM's buffer_steps) and 64 MiB.
	ReplayMessages int
	ReplayBytes    int
	// QueueMessages bounds what waits for one slow subscriber; beyond it that
	// subscriber misses messages, as ZMQ's high-water mark has it. 0 means
	// 4,096.
	QueueMessages int
	// BlockBytes and CapacityBlocks are the size of a block and of the cache;
	// JSON events say them (cache_size_bytes, num_gpu_blocks), so that a
	// KV-cache manager can tell sizes and utilization. 0 says nothing.
	BlockBytes     int64
	CapacityBlocks int
	// DataParallelRank is the third element of a batch; -1 writes nil.
	DataParallelRank int
	// OnSend, if not nil, sees each message's events before it leaves, in
	// order. It must not call the publisher nor keep the events.
	OnSend func(seq uint64, events []kv.Event)

	Log *slog.Logger
}

// Publisher sends KV events. Its methods may be called from any goroutine.
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

	entry   sync.Mutex // all that Publish waits for, while no more than maxQueued wait
	queue   []kv.Event
	waiting int  // events of queue and of pending
	closed  bool // changes with mu too

	mu       sync.Mutex     // whoever encodes has it
	pending  []kv.Event     // were in queue
	spare    []kv.Event     // memory of queue
	text     []byte         // memory of send
	copies   kvcodec.Copies // where the format is JSON
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

// NewPublisher starts a publisher; Close ends it.
func NewPublisher(opts PublisherOptions) (*Publisher, error) {
	if opts.Bind == "" && len(opts.Connect) == 0 {
		return nil, errors.New("a KV event publisher needs an endpoint to bind or to connect to")
	}
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&opts.BatchEvents, 1024)
	orInt(&opts.ReplayMessages, 10000)
	orInt(&opts.ReplayBytes, 64<<20)
	orInt(&opts.QueueMessages, 4096)
	if opts.Interval == 0 {
		opts.Interval = 100 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
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
	own := p.addr
	if own == nil {
		own = p.replay
	}
	for _, endpoint := range p.opts.Connect {
		if err := p.pub.dial(ctx, endpoint, loopbackOf(own, endpoint)); err != nil {
			return err
		}
	}
	return nil
}

// Endpoint is where the publisher is bound, with the port that it got; "" if
// it only connects.
func (p *Publisher) Endpoint() string { return endpointOf(p.addr) }

// ReplayEndpoint is where it replays; "" if it does not.
func (p *Publisher) ReplayEndpoint() string { return endpointOf(p.replay) }

func endpointOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return "tcp://" + a.String()
}

// maxQueued is how many events may wait to be encoded; Publish then helps.
const maxQueued = 1 << 14

// Publish hands over an event, whose slices belong to the publisher from now
// on. It does not wait for anybody, unless events come faster than they can be
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
		p.rouse()
	}
	if full {
		p.drain(false)
	}
}

// batch is how many events are sent at once.
func (p *Publisher) batch() int {
	if p.opts.Interval < 0 {
		return 1
	}
	return p.opts.BatchEvents
}

// rouse has run look at what waits.
func (p *Publisher) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Flush sends what waits, without waiting for the interval.
func (p *Publisher) Flush() { p.drain(true) }

func (p *Publisher) drain(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flush(all) {
		p.rouse()
	}
}

// flush sends what waits in whole batches, and the rest too where all is asked
// for. It says whether something waits still. The lock is held.
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

// send sends one batch, even of no events. The lock is held.
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
		told := batch
		told.Events = nil
		for _, e := range batch.Events {
			if e, any := p.copies.Last(e); any {
				told.Events = append(told.Events, e)
			}
		}
		if len(told.Events) == 0 {
			return
		}
		var err error
		if text, err = kvcodec.AppendJSON(text, told, p.opts.Topic.Pod); err != nil {
			p.opts.Log.Error("KV events cannot be written", "error", err)
			return
		}
	case MsgpackMap:
		text = kvcodec.AppendBatch(text, batch, kvcodec.MapForm)
	default:
		text = kvcodec.AppendBatch(text, batch, kvcodec.ArrayForm)
	}
	p.text = text
	payload := bytes.Clone(text) // to be kept: no more than is counted
	if p.opts.Log.Enabled(context.Background(), slog.LevelInfo) {
		p.opts.Log.Info("KV_EVENT published", "pod_id", p.opts.Topic.Pod, "sequence", p.seq, "events",
			tell(batch.Events), "bytes", len(payload), "subscribers", len(p.subs))
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

// tell counts events by document 003's names.
func tell(events []kv.Event) string {
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

// run sends full batches at once, and others when their interval is over.
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

// silent says whether a sign of life is due. The lock is held.
func (p *Publisher) silent() bool { return !p.closed && time.Since(p.last) >= p.opts.Heartbeat }

// PublisherStats are a publisher's counts.
type PublisherStats struct {
	Messages    uint64 // sent so far; the next one's sequence number
	Dropped     uint64 // missed by slow subscribers
	Subscribers int    // connected and subscribed to the topic
}

// Stats are the publisher's counts now.
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

// Close sends what waits, gives subscribers a second to take it, and ends.
func (p *Publisher) Close() {
	p.wentDown.Do(func() {
		p.mu.Lock()
		p.entry.Lock()
		p.closed = true
		p.entry.Unlock()
		p.flush(true)
		for o := range p.subs {
			delete(p.subs, o)
			close(o.messages) // its writer sends what is in it, then hangs up
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
