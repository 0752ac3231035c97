package kvevents

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// IndexerOptions shape an Indexer.
type IndexerOptions struct {
	// Subscriber says where events come from; its Handle is the indexer's.
	Subscriber SubscriberOptions
	Index      kv.Config
	// Lenient takes msgpack that llm-d-router would refuse (kv.Decoder).
	Lenient bool
	// SGLang takes SGLang's msgpack and not vLLM's.
	SGLang bool
	// Model is what events came for when neither they nor their topic say.
	Model string

	// OnEvents, if not nil, is shown events before they take effect.
	OnEvents func(from kv.Topic, events []kv.Event)
	// OnMessage, if not nil, is told of every message, after it took effect.
	OnMessage func(Report)
	// OnEffect, if not nil, is told what the index does by itself.
	OnEffect func(kv.Effect)
	// OnChange, if not nil, sees the index some time after it changed, at most
	// every 20 ms. It runs at the index's turn and must be quick.
	OnChange func(now machine.Time, ix *kv.Index)
}

// Report is what became of one message.
type Report struct {
	From   kv.Topic
	Seq    uint64        // the message's number, where it has one
	Events []kv.Event    // valid during the call
	Took   time.Duration // decoding and applying it
	Lag    time.Duration // from its publisher's clock to its effect; 0 if it does not say
	Lost   string        // why all that the pod held was forgotten
	Err    error         // why the message was dropped
}

// ErrNameless is a message of nobody: neither its topic nor pod_id names a
// pod.
var ErrNameless = errors.New("neither the topic nor pod_id names a pod; expected a topic like kv@<ip>:<port>@<model>")

// Indexer keeps an index of which pod holds which block from the events that a
// Subscriber takes. One goroutine owns the index; View looks it up without
// waiting for it. The KV-cache manager is an HTTP server around one; an
// endpoint picker holds one in process.
type Indexer struct {
	opts  IndexerOptions
	log   *slog.Logger
	ix    *kv.Index // the goroutine's alone, but for its View
	view  kv.View
	sub   *Subscriber
	began time.Time

	jobs   chan func(now machine.Time, ix *kv.Index)
	posted chan func(now machine.Time, ix *kv.Index)
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup

	decoder kv.Decoder // the subscriber's goroutine's
}

const (
	changeEvery = 20 * time.Millisecond
	maxPosted   = 64
	// biteBlocks is how much of a message is applied in one turn, so that
	// questions come in between.
	biteBlocks = 4096
)

// NewIndexer starts an indexer; Close ends it.
func NewIndexer(opts IndexerOptions) (*Indexer, error) {
	x := &Indexer{opts: opts, log: opts.Subscriber.Log, ix: kv.NewIndex(opts.Index), began: time.Now(),
		jobs: make(chan func(machine.Time, *kv.Index)), posted: make(chan func(machine.Time, *kv.Index), maxPosted),
		decoder: kv.Decoder{Lenient: opts.Lenient, SGLang: opts.SGLang}}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	x.view = x.ix.View()
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.wait.Add(1)
	go x.run()
	opts.Subscriber.Handle = x.handle
	var err error
	if x.sub, err = NewSubscriber(opts.Subscriber); err != nil {
		x.cancel()
		x.wait.Wait()
		return nil, err
	}
	return x, nil
}

// View looks blocks up from any goroutine, without a lock.
func (x *Indexer) View() kv.View { return x.view }

// Endpoint is where publishers connect to; "" if it only dials.
func (x *Indexer) Endpoint() string { return x.sub.Endpoint() }

// Dial keeps a connection to one pod's publisher; see Subscriber.Dial.
func (x *Indexer) Dial(from kv.Topic, endpoint, replay string) error {
	return x.sub.Dial(from, endpoint, replay)
}

// Hangup forgets a pod that is gone, with all that it held.
func (x *Indexer) Hangup(pod string) {
	x.sub.Hangup(pod)
	x.Do(func(now machine.Time, ix *kv.Index) { ix.DropPod(now, pod) })
}

// Close ends the indexer and waits until all of it has ended.
func (x *Indexer) Close() {
	x.cancel()
	x.sub.Close()
	x.wait.Wait()
}

// Wall is a time of the index as a time of day.
func (x *Indexer) Wall(t machine.Time) time.Time { return x.began.Add(t.Duration()) }

// Do has a job done with the index at its turn, and waits for it. It says
// whether it was done: not after Close.
func (x *Indexer) Do(job func(now machine.Time, ix *kv.Index)) bool {
	done := make(chan struct{})
	select {
	case x.jobs <- func(now machine.Time, ix *kv.Index) { defer close(done); job(now, ix) }:
		<-done
		return true
	case <-x.ctx.Done():
		return false
	}
}

// Post is Do for what matters less than the caller's time: it does not wait,
// and says false when too much is waiting already.
func (x *Indexer) Post(job func(now machine.Time, ix *kv.Index)) bool {
	select {
	case x.posted <- job:
		return true
	default:
		return false
	}
}

// run owns the index: it is the machine's one goroutine.
func (x *Indexer) run() {
	defer x.wait.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var told time.Time // of the latest change
	changed := false
	now := func() machine.Time { return machine.FromDuration(time.Since(x.began)) }
	for {
		wait := time.Hour
		if at, ok := x.ix.Next(); ok {
			wait = max(0, at.Duration()-time.Since(x.began))
		}
		if changed {
			wait = min(wait, max(0, changeEvery-time.Since(told)))
		}
		timer.Reset(wait)
		select {
		case <-x.ctx.Done():
			return
		case job := <-x.jobs:
			job(now(), x.ix)
			changed = true
		case job := <-x.posted:
			job(now(), x.ix)
			changed = true
		case <-timer.C:
		}
		x.ix.Advance(now(), func(e kv.Effect) {
			changed = true
			if x.opts.OnEffect != nil {
				x.opts.OnEffect(e)
			}
		})
		if changed && time.Since(told) >= changeEvery {
			if x.opts.OnChange != nil {
				x.opts.OnChange(now(), x.ix)
			}
			changed, told = false, time.Now()
		}
	}
}

// handle takes what the subscriber delivers.
func (x *Indexer) handle(d Delivery) {
	r := Report{From: d.From, Seq: d.Seq, Lost: d.Lost}
	if d.Lost != "" {
		x.Do(func(now machine.Time, ix *kv.Index) { ix.DropBlocks(now, d.From.Pod) })
	} else {
		began := time.Now()
		at := x.apply(d, &r)
		now := time.Now()
		r.Took = now.Sub(began)
		if at > 0 && r.Err == nil {
			r.Lag = max(0, now.Sub(time.UnixMicro(int64(at*1e6))))
		}
	}
	if r.Err != nil {
		x.log.Warn("KV event message dropped", "pod_id", d.From.Pod, "error", r.Err)
	}
	if x.opts.OnMessage != nil {
		x.opts.OnMessage(r)
	}
}

// apply decodes a message and has its events take effect, in bites. It gives
// the publisher's time in Unix seconds.
func (x *Indexer) apply(d Delivery, r *Report) (at float64) {
	batch, err := Decode(&x.decoder, d)
	if r.Err = err; err != nil {
		return 0
	}
	r.Events = batch.Events
	from := d.From
	if from.Model == "" {
		from.Model = x.opts.Model
	}
	if x.opts.OnEvents != nil {
		x.opts.OnEvents(from, batch.Events)
	}
	if len(batch.Events) == 0 {
		x.Do(func(now machine.Time, ix *kv.Index) { ix.Hear(now, from.Pod) })
	}
	for i := 0; i < len(batch.Events); {
		first, blocks := i, 0
		for ; i < len(batch.Events) && (blocks == 0 || blocks+len(batch.Events[i].Hashes) <= biteBlocks); i++ {
			blocks += 1 + len(batch.Events[i].Hashes)
		}
		bite := batch.Events[first:i]
		if !x.Do(func(now machine.Time, ix *kv.Index) {
			for k := range bite {
				ix.Input(now, from, &bite[k])
			}
		}) {
			return 0
		}
	}
	return batch.At
}
