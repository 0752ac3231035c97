package kvevents

import (
	"errors"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
)

// IndexerOptions shape an Indexer.
type IndexerOptions struct {
	// Subscriber says where events come from; its Handle is the indexer's.
	Subscriber SubscriberOptions
	Index      kvindex.Config
	// Lenient takes msgpack that llm-d-router would refuse (kvcodec.Decoder).
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
	OnEffect func(kvindex.Effect)
	// OnChange, if not nil, sees the index some time after it changed, at most
	// every 20 ms. It runs at the index's turn and must be quick.
	OnChange func(now machine.Time, ix *kvindex.Index)
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
// Subscriber takes. View looks it up without waiting for anybody. The KV-cache
// manager is an HTTP server around one; an endpoint picker holds one in
// process.
type Indexer struct {
	opts   IndexerOptions
	log    *slog.Logger
	drive  *drive.Driver[kvindex.Message, *kvindex.Effects]
	view   kvindex.View
	sub    *Subscriber
	began  time.Time
	posted chan kvindex.Message

	// The following are for who has the index in hand.
	ix     *kvindex.Index
	told   machine.Time // of the latest change
	change *time.Timer  // will tell of the next; nil: none is known

	// And these for who has the subscriber's turn.
	decoder kvcodec.Decoder
	events  kvindex.Events
}

const (
	changeEvery = 20 * machine.Millisecond
	maxPosted   = 64
	// biteBlocks is how much of a message is applied in one turn, so that
	// questions come in between.
	biteBlocks = 4096
)

// NewIndexer starts an indexer; Close ends it.
func NewIndexer(opts IndexerOptions) (*Indexer, error) {
	x := &Indexer{opts: opts, log: opts.Subscriber.Log, ix: kvindex.New(opts.Index), began: time.Now(),
		posted: make(chan kvindex.Message, maxPosted),
		told:   -changeEvery, decoder: kvcodec.Decoder{Lenient: opts.Lenient, SGLang: opts.SGLang}}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
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

// View looks blocks up from any goroutine, without a lock.
func (x *Indexer) View() kvindex.View { return x.view }

// Endpoint is where publishers connect to; "" if it only dials.
func (x *Indexer) Endpoint() string { return x.sub.Endpoint() }

// Dial keeps a connection to one pod's publisher; see Subscriber.Dial.
func (x *Indexer) Dial(from kv.Topic, endpoint, replay string) error {
	return x.sub.Dial(from, endpoint, replay)
}

// Hangup forgets a pod that is gone, with all that it held.
func (x *Indexer) Hangup(pod string) {
	x.sub.Hangup(pod)
	x.Input(kvindex.DropPod{Pod: pod})
}

// Close ends the indexer and waits until all of it has ended.
func (x *Indexer) Close() {
	x.drive.Stop()
	x.sub.Close()
}

// Wall is a time of the index as a time of day.
func (x *Indexer) Wall(t machine.Time) time.Time { return x.began.Add(t.Duration()) }

// Input gives the index a message. It is false after Close.
func (x *Indexer) Input(m kvindex.Message) bool {
	return x.drive.With(func(now machine.Time, fx *kvindex.Effects) {
		x.ix.Input(now, m, fx)
		x.changed(now)
	})
}

// Do has a job done that reads the index, and says whether it was: not after
// Close.
func (x *Indexer) Do(job func(now machine.Time, ix *kvindex.Index)) bool {
	return x.drive.With(func(now machine.Time, fx *kvindex.Effects) {
		x.takePosted(now, fx)
		job(now, x.ix)
	})
}

// Post is Input for what matters less than the caller's time: it does not wait,
// and says false when too much is waiting already. Whoever reads the index next
// sees it.
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

// carry tells what the index did by itself.
func (x *Indexer) carry(now machine.Time, fx *kvindex.Effects, i int) {
	if x.opts.OnEffect != nil {
		x.opts.OnEffect(fx.List[i])
	}
	x.changed(now)
}

// changed sees to it that OnChange is told, now or when some time has passed
// since it was.
func (x *Indexer) changed(now machine.Time) {
	if x.opts.OnChange == nil || x.change != nil {
		return
	}
	if wait := x.told + changeEvery - now; wait > 0 {
		x.change = time.AfterFunc(wait.Duration(), func() {
			x.drive.With(func(now machine.Time, _ *kvindex.Effects) {
				x.change = nil
				x.tell(now)
			})
		})
		return
	}
	x.tell(now)
}

func (x *Indexer) tell(now machine.Time) {
	x.told = now
	x.opts.OnChange(now, x.ix)
}

// handle takes what the subscriber delivers.
func (x *Indexer) handle(d Delivery) {
	r := Report{From: d.From, Seq: d.Seq, Lost: d.Lost}
	if d.Lost != "" {
		x.Input(kvindex.DropBlocks{Pod: d.From.Pod})
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
	x.events.From = from
	for i, more := 0, true; more; more = i < len(batch.Events) {
		first, blocks := i, 0
		for ; i < len(batch.Events) && (blocks == 0 || blocks+len(batch.Events[i].Hashes) <= biteBlocks); i++ {
			blocks += 1 + len(batch.Events[i].Hashes)
		}
		x.events.List = batch.Events[first:i] // none, of an empty batch
		if !x.Input(&x.events) {
			return 0
		}
	}
	return batch.At
}
