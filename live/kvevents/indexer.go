package kvevents

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
)

// IndexerOptions configure an Indexer.
type IndexerOptions struct {
	// Subscriber configures where events come from. The indexer sets its Handle.
	Subscriber SubscriberOptions
	Index      kvindex.Config
	// Lenient accepts msgpack that llm-d-router would refuse (kvcodec.Decoder).
	Lenient bool
	// SGLang decodes SGLang's msgpack instead of vLLM's.
	SGLang bool
	// Model is the model of events that name none, neither themselves nor in their topic.
	Model string

	// OnEvents, if not nil, gets a message's events before they take effect.
	OnEvents func(from kv.Topic, events []kv.Event)
	// OnMessage, if not nil, gets a report on every message after it took effect.
	OnMessage func(Report)
	// OnEffect, if not nil, gets what the index does without a message, such as dropping a silent pod.
	OnEffect func(kvindex.Effect)
	// OnChange, if not nil, gets the index after changes, at most every 20 ms. It runs while the index is locked, so
	// it must be quick.
	OnChange func(now machine.Time, ix *kvindex.Index)
}

// Report describes how the indexer handled one message.
type Report struct {
	From   kv.Topic
	Seq    uint64        // the message's number, where it has one
	Events []kv.Event    // valid during the call
	Took   time.Duration // decoding and applying it
	Lag    time.Duration // from the publisher's clock to the effect; 0 if the message has no time
	Lost   string        // why the index dropped all blocks of the pod
	Err    error         // why the message was dropped
}

// ErrNameless is the error of a message whose sender is unknown: neither its topic nor its pod_id names a pod.
var ErrNameless = errors.New("neither the topic nor pod_id names a pod; expected a topic like kv@<ip>:<port>@<model>")

// Indexer keeps an index from blocks to the pods that hold them, from the events that a Subscriber receives. View looks
// blocks up without waiting for a lock. The KV-Cache Manager is an HTTP server around an Indexer; an endpoint picker
// has one in its process.
type Indexer struct {
	opts   IndexerOptions
	log    *slog.Logger
	drive  *drive.Driver[kvindex.Message, *kvindex.Effects]
	view   kvindex.View
	sub    *Subscriber
	began  time.Time
	posted chan kvindex.Message

	// The index's driver guards the following.
	ix        *kvindex.Index
	changedAt machine.Time // time of the latest OnChange call
	change    *time.Timer  // calls OnChange for later changes; nil: no call is due

	// The subscriber's handler guards the following.
	decoder kvcodec.Decoder
	events  kvindex.Events
}

const (
	changeEvery = 20 * machine.Millisecond
	maxPosted   = 64
	// portionBlocks is how many blocks of a message are applied in one turn. Queries run between turns.
	portionBlocks = 4096
)

// NewIndexer starts an indexer. Close stops it.
func NewIndexer(opts IndexerOptions) (*Indexer, error) {
	x := &Indexer{opts: opts, log: cmp.Or(opts.Subscriber.Log, slog.New(slog.DiscardHandler)),
		ix: kvindex.New(opts.Index), began: time.Now(), posted: make(chan kvindex.Message, maxPosted),
		changedAt: -changeEvery, decoder: kvcodec.Decoder{Lenient: opts.Lenient, SGLang: opts.SGLang}}
	x.view = x.ix.View()
	x.drive = drive.New(drive.Options[kvindex.Message, *kvindex.Effects]{Machine: x.ix, Effects: new(kvindex.Effects),
		Now: drive.Since(x.began), Carry: x.carry})
	opts.Subscriber.Handle = x.handle
	var err error
	if x.sub, err = NewSubscriber(opts.Subscriber); err != nil {
		x.drive.Stop()
		return nil, err
	}
	return x, nil
}

// View returns a view that looks blocks up from any goroutine, without a lock.
func (x *Indexer) View() kvindex.View { return x.view }

// Endpoint returns the endpoint that publishers connect to, or "" if the indexer only dials.
func (x *Indexer) Endpoint() string { return x.sub.Endpoint() }

// Dial keeps a connection to one pod's publisher. See Subscriber.Dial.
func (x *Indexer) Dial(from kv.Topic, endpoint, replay string) error {
	return x.sub.Dial(from, endpoint, replay)
}

// Hangup drops a pod and all its blocks.
func (x *Indexer) Hangup(pod string) {
	x.sub.Hangup(pod)
	x.Input(kvindex.DropPod{Pod: pod})
}

// Close stops the indexer and waits until all its goroutines have ended.
func (x *Indexer) Close() {
	x.drive.Stop()
	x.sub.Close()
}

// Wall converts a time of the index to wall time.
func (x *Indexer) Wall(t machine.Time) time.Time { return x.began.Add(t.Duration()) }

// Input passes a message to the index. It returns false after Close.
func (x *Indexer) Input(m kvindex.Message) bool {
	return x.drive.With(func(now machine.Time, fx *kvindex.Effects) {
		x.ix.Input(now, m, fx)
		x.changed(now)
	})
}

// Do runs a job that reads the index. It returns false, without running the job, after Close.
func (x *Indexer) Do(job func(now machine.Time, ix *kvindex.Index)) bool {
	return x.drive.With(func(now machine.Time, fx *kvindex.Effects) {
		x.takePosted(now, fx)
		job(now, x.ix)
	})
}

// Post queues a message that is less important than the caller's time. It does not wait, and returns false when the
// queue is full. The next reader of the index sees the message.
func (x *Indexer) Post(m kvindex.Message) bool {
	select {
	case x.posted <- m:
	default:
		return false
	}
	x.drive.Try(x.takePosted)
	return true
}

func (x *Indexer) takePosted(now machine.Time, fx *kvindex.Effects) {
	for {
		select {
		case m := <-x.posted:
			x.ix.Input(now, m, fx)
			x.changed(now)
		default:
			return
		}
	}
}

// carry reports what the index did without a message.
func (x *Indexer) carry(now machine.Time, fx *kvindex.Effects, i int) {
	if x.opts.OnEffect != nil {
		x.opts.OnEffect(fx.List[i])
	}
	x.changed(now)
}

// changed calls OnChange, now or once changeEvery has passed since the last call.
func (x *Indexer) changed(now machine.Time) {
	if x.opts.OnChange == nil || x.change != nil {
		return
	}
	if wait := x.changedAt + changeEvery - now; wait > 0 {
		x.change = time.AfterFunc(wait.Duration(), func() {
			x.drive.With(func(now machine.Time, _ *kvindex.Effects) {
				x.change = nil
				x.publish(now)
			})
		})
		return
	}
	x.publish(now)
}

func (x *Indexer) publish(now machine.Time) {
	x.changedAt = now
	x.opts.OnChange(now, x.ix)
}

// handle handles one delivery of the subscriber.
func (x *Indexer) handle(d Delivery) {
	r := Receive(&x.decoder, d, x.log, x.apply)
	if x.opts.OnMessage != nil {
		x.opts.OnMessage(r)
	}
}

// apply applies a message to the index. It returns false if the index has stopped.
func (x *Indexer) apply(r *Report) bool {
	if r.Lost != "" {
		return x.Input(kvindex.DropBlocks{Pod: r.From.Pod})
	}
	x.events.From = r.From
	x.events.From.Model = cmp.Or(r.From.Model, x.opts.Model)
	if x.opts.OnEvents != nil {
		x.opts.OnEvents(x.events.From, r.Events)
	}
	return Portions(r.Events, portionBlocks, func(events []kv.Event) bool {
		x.events.List = events
		return x.Input(&x.events)
	})
}
