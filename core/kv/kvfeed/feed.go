package kvfeed

import (
	"bytes"
	"cmp"

	"github.com/cespare/xxhash/v2"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Gaps is a way to treat missing sequence numbers.
type Gaps uint8

// The ways to treat a gap.
const (
	// GapsDrop forgets the publisher's blocks when a message stays away: a
	// lost removal would make the index promise what is not there.
	GapsDrop Gaps = iota
	// GapsReplay asks the publisher for what is missing, and forgets its
	// blocks only if that fails.
	GapsReplay
	// GapsIgnore takes every message as it comes. llm-d-router does so when
	// no replaySocketPort is configured.
	GapsIgnore
)

// Config shapes a Feed. The zero value is usable.
type Config struct {
	Gaps Gaps
	// Wait is how late a missing message may come before the gap counts (GapsDrop); 0 means 100 ms.
	Wait machine.Time
	// Probe is how long the stream may be silent, from its opening on, before the feed requests a replay in any case
	// (GapsReplay): if the last messages are lost, no later one reveals the gap. It doubles with every probe of one
	// silence, up to a minute. 0 means 1 s, below 0 never.
	Probe machine.Time
	// HoldMessages and HoldBytes bound what waits behind a gap; 0 means 4,096
	// messages and 64 MiB. Beyond them the gap counts at once, but during a
	// replay what waits is let go: the replay is asked for it.
	HoldMessages int
	HoldBytes    int
}

// Feed puts one publisher's messages into order: a machine (see core/machine). Messages enter by sequence number. The
// feed delivers each message once and in order, and reports losses.
//
//   - A repeated message, within the last 1,024 (window), is a duplicate if its bytes are
//     the same, and ignored.
//   - A number that goes back otherwise means that the publisher restarted: Lost, then
//     everything from the beginning (a replay if the publisher has one).
//   - Skipped numbers are a gap: later messages wait until the missing ones come, by
//     themselves or by replay. If they do not come: Lost, then the messages that waited.
//   - The first message may have any number, since the publisher is older than the
//     subscriber. With GapsReplay the feed first requests the messages that the publisher
//     still has, from 0 on, and repeats the request while it fails. Messages that the
//     publisher no longer has stay unknown: their blocks count when they are stored again.
//   - After a broken stream, the replay begins at the last known message. If the publisher
//     lacks it, or has another one under its number, the publisher restarted.
type Feed struct {
	cfg Config
	now machine.Time

	started   bool   // the next two mean something
	first     uint64 // the number that was delivered first since the last loss
	next      uint64 // the one to be delivered next
	live      uint64 // highest number that came by itself
	anyLive   bool
	replaying bool
	asked     bool         // the first replay was asked for
	came      bool         // something of this replay did
	deadline  machine.Time // of a gap
	suspect   uint64       // a message that the publisher must show again
	suspected bool         // it has not done so since the stream was opened
	behind    bool         // the publisher's history was asked for in vain
	retry     machine.Time // when to ask for it again
	patience  machine.Time // until the next retry after that
	probe     machine.Time // when to ask in spite of no gap
	silence   machine.Time // how long the next silence may be

	held      map[uint64][]byte
	heldBytes int
	recent    []uint64 // checksums of delivered messages, by number: a ring that grows to window
	newest    uint64   // the last number in it
	kept      uint64   // how many numbers up to that are in it, while it grows
	fx        *Effects // the caller's, during a call
}

// MessageKind is the type of a Message.
type MessageKind uint8

// The kinds of messages.
const (
	// Live is a message of the live stream: Seq and Payload.
	Live MessageKind = iota + 1
	// Connected: the stream was opened, for the first time or again. With
	// GapsReplay what was published meanwhile is asked for.
	Connected
	// Replayed is a message of the replay that was asked for last.
	Replayed
	// ReplayEnded: that replay is over, Whole or broken off before its end.
	ReplayEnded
)

// Message is an input of a Feed. The feed owns the payload from then on.
type Message struct {
	Kind    MessageKind
	Seq     uint64
	Payload []byte
	Whole   bool
}

// window is the number of delivered messages whose checksums the feed keeps, to recognise repetitions.
const window = 1024

// EffectKind is the type of an Effect.
type EffectKind uint8

// The kinds of effects.
const (
	Deliver   EffectKind = iota + 1 // Payload is next in order
	AskReplay                       // send Seq to the publisher's replay socket; in the end comes a ReplayEnded
	Lost                            // the publisher's blocks are no longer known
)

// Effect is a request to the driver.
type Effect struct {
	At      machine.Time
	Kind    EffectKind
	Seq     uint64
	Payload []byte
	Reason  string // of Lost
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Effects is the buffer that a Feed fills.
type Effects = machine.Effects[Effect]

var _ machine.Machine[Message, *Effects] = (*Feed)(nil)

// New makes the feed of one publisher.
func New(cfg Config) *Feed {
	cfg.Wait = cmp.Or(max(cfg.Wait, 0), 100*machine.Millisecond)
	cfg.Probe = cmp.Or(cfg.Probe, machine.Second)
	if cfg.Gaps != GapsReplay {
		cfg.Probe = -1
	}
	cfg.HoldMessages = cmp.Or(max(cfg.HoldMessages, 0), 4096)
	cfg.HoldBytes = cmp.Or(max(cfg.HoldBytes, 0), 64<<20)
	return &Feed{cfg: cfg, deadline: machine.Never, probe: machine.Never, retry: machine.Never}
}

// Input takes a message.
func (f *Feed) Input(now machine.Time, m Message, fx *Effects) {
	f.Advance(now, fx)
	f.fx = fx
	switch m.Kind {
	case Live:
		f.take(m.Seq, m.Payload)
	case Connected:
		f.connected()
	case Replayed:
		f.replayed(m.Seq, m.Payload)
	case ReplayEnded:
		switch {
		case !f.replaying:
		case m.Whole:
			f.endReplay(true, "a replay did not bring the messages that are missing")
		default:
			f.endReplay(false, "a replay failed")
		}
	}
	f.fx = nil
}

// take handles a message of the live stream.
func (f *Feed) take(seq uint64, payload []byte) {
	if f.cfg.Gaps == GapsIgnore {
		f.emit(Effect{Kind: Deliver, Seq: seq, Payload: payload})
		return
	}
	f.endSilence()
	if f.started && seq < f.next && f.same(seq, payload) {
		return
	}
	if waiting, ok := f.held[seq]; ok && bytes.Equal(waiting, payload) {
		return
	}
	back := f.anyLive && seq <= f.live && (!f.started || seq < f.next)
	if back || f.started && seq < f.next && f.next-seq <= window {
		f.restart("the publisher's sequence went back: it restarted")
	}
	f.live = max(f.live, seq)
	if !f.anyLive {
		f.anyLive, f.live = true, seq
	}
	if !f.started && f.cfg.Gaps == GapsReplay && !f.replaying && (!f.asked || seq > 0) {
		f.ask(0)
	}
	if f.started && seq < f.next {
		return // a replay was faster
	}
	if !f.started && !f.replaying {
		f.start(seq)
	}
	if f.started && seq == f.next {
		f.deliver(seq, payload)
		f.drain()
		return
	}
	f.hold(seq, payload)
	switch {
	case f.replaying && f.full():
		f.forgetHeld()
	case f.full():
		f.giveUp("too many messages wait behind a gap in the sequence")
	case f.replaying:
	case f.cfg.Gaps == GapsReplay:
		f.ask(f.firstMissing())
	case f.deadline == machine.Never:
		f.deadline = f.now.Add(f.cfg.Wait)
	}
}

// restart forgets the sequence of a publisher that has begun another one.
func (f *Feed) restart(reason string) {
	f.lose(reason)
	f.started, f.asked, f.replaying, f.anyLive, f.behind, f.suspected = false, false, false, false, false, false
	f.deadline, f.retry = machine.Never, machine.Never
	f.forgetHeld()
}

// connected handles the stream's opening.
func (f *Feed) connected() {
	if f.cfg.Gaps != GapsReplay {
		return
	}
	if f.started && !f.suspected {
		f.suspected, f.suspect = true, f.next-1
	}
	if !f.replaying {
		f.silence = f.cfg.Probe
		f.inquire()
	}
}

// inquire asks for what may have been missed, and for the last known message.
func (f *Feed) inquire() {
	if f.behind || !f.started {
		f.ask(0)
	} else {
		f.ask(f.next - 1)
	}
}

// replayed handles a message of a replay.
func (f *Feed) replayed(seq uint64, payload []byte) {
	if !f.replaying {
		return
	}
	if f.started && seq < f.next {
		switch {
		case f.behind && seq < f.first: // the history at last: all over again, in its order
			f.lose("the publisher's earlier messages are here now")
			f.behind, f.started, f.suspected = false, false, false
		case !f.same(seq, payload) && (f.next-seq <= window || f.suspected && seq == f.suspect):
			f.restart("the publisher has another message under the number of a former one: it restarted")
			f.ask(0)
			return
		default:
			f.suspected = f.suspected && seq != f.suspect
			return
		}
	}
	f.suspected = false // a later message proves that the publisher is the same, even if it lacks the suspect
	if f.started && seq > f.next {
		f.lose("the publisher no longer has the messages that are missing")
	}
	if !f.started {
		f.behind = false // as far as there is a history, this is its beginning
	}
	if !f.started || seq > f.next {
		f.start(seq)
	}
	f.came = true
	f.deliver(seq, payload)
	f.drain()
}

func (f *Feed) endReplay(whole bool, reason string) {
	f.replaying = false
	f.deadline = machine.Never
	if whole && f.suspected {
		f.restart("the publisher no longer has its last message: it restarted")
		f.ask(0)
		return
	}
	missing := f.started && f.anyLive && f.live >= f.next
	if f.came && (!whole || missing) {
		f.ask(f.firstMissing()) // the replay continues
		return
	}
	if f.cfg.Probe > 0 {
		f.probe = f.now.Add(max(f.silence, f.cfg.Probe))
	}
	if whole {
		f.behind, f.patience = false, 0
	} else if f.behind || f.suspected || !f.started || missing || len(f.held) > 0 {
		f.behind = f.behind || !f.started || missing || len(f.held) > 0
		f.patience = min(max(2*f.patience, machine.Second), 30*machine.Second)
		f.retry = f.now.Add(f.patience)
	}
	switch {
	case len(f.held) > 0:
		f.giveUp(reason)
	case whole: // later messages were the publisher's before it restarted
		f.anyLive = f.anyLive && !missing
	}
}

func (f *Feed) firstMissing() uint64 {
	if f.started && !f.behind {
		return f.next
	}
	return 0
}

// Next returns when the next timer is due, if any. The feed waits for a replay without limit: the driver knows whether
// anything still comes.
func (f *Feed) Next() (machine.Time, bool) {
	at := f.due()
	return at, at != machine.Never
}

func (f *Feed) due() machine.Time {
	if f.replaying {
		return machine.Never
	}
	return min(f.deadline, f.probe, f.retry)
}

// endSilence ends a silence of the live stream.
func (f *Feed) endSilence() {
	if f.cfg.Probe > 0 {
		f.silence = f.cfg.Probe
		f.probe = f.now.Add(f.silence)
	}
}

// Advance does what is due.
func (f *Feed) Advance(now machine.Time, fx *Effects) {
	f.fx = fx
	for f.due() <= now {
		f.now = max(f.now, f.due())
		switch {
		case f.deadline <= f.now:
			f.giveUp("messages are missing in the sequence")
		case f.retry <= f.now:
			f.inquire()
		default:
			f.silence = min(2*f.silence, 60*machine.Second)
			f.inquire()
		}
	}
	f.now, f.fx = max(f.now, now), nil
}

func (f *Feed) emit(e Effect) {
	e.At = f.now
	f.fx.Add(e)
}

func (f *Feed) ask(from uint64) {
	if f.suspected {
		from = min(from, f.suspect)
	}
	f.asked, f.replaying, f.came = true, true, false
	f.deadline, f.retry = machine.Never, machine.Never
	f.emit(Effect{Kind: AskReplay, Seq: from})
}

func (f *Feed) start(seq uint64) { f.started, f.first, f.next = true, seq, seq }

func (f *Feed) lose(reason string) { f.emit(Effect{Kind: Lost, Reason: reason}) }

func (f *Feed) deliver(seq uint64, payload []byte) {
	f.remember(seq, checksum(seq, payload))
	f.next = seq + 1
	f.emit(Effect{Kind: Deliver, Seq: seq, Payload: payload})
}

// same reports whether a message was delivered not long ago, byte for byte.
func (f *Feed) same(seq uint64, payload []byte) bool {
	return f.next-seq <= window && len(f.recent) > 0 && f.recent[seq%uint64(len(f.recent))] == checksum(seq, payload)
}

// remember notes a message that was delivered. Most publishers that a stranger
// makes up send one, so the ring begins small; behind a jump in the numbers it
// has its full length, as only then they share no slot.
func (f *Feed) remember(seq, sum uint64) {
	length := uint64(len(f.recent))
	grown := length
	switch {
	case length == window:
	case length == 0:
		grown = 8
	case seq != f.newest+1:
		grown = window
	case f.kept == length:
		grown = 2 * length
	}
	if grown > length {
		larger := make([]uint64, grown)
		for n := f.newest - f.kept + 1; f.kept > 0; n++ {
			larger[n%grown] = f.recent[n%length]
			if n == f.newest {
				break
			}
		}
		f.recent = larger
	}
	f.recent[seq%uint64(len(f.recent))] = sum
	f.newest, f.kept = seq, min(f.kept+1, uint64(len(f.recent)))
}

func checksum(seq uint64, payload []byte) uint64 { return xxhash.Sum64(payload) ^ seq }

func (f *Feed) hold(seq uint64, payload []byte) {
	if f.held == nil {
		f.held = map[uint64][]byte{}
	}
	f.heldBytes += len(payload) - len(f.held[seq])
	f.held[seq] = payload
}

// drain delivers what waited and is next now.
func (f *Feed) drain() {
	for len(f.held) > 0 {
		payload, ok := f.held[f.next]
		if !ok {
			return
		}
		f.unhold(f.next)
		f.deliver(f.next, payload)
	}
	if !f.replaying {
		f.deadline = machine.Never
	}
}

func (f *Feed) full() bool {
	return len(f.held) > f.cfg.HoldMessages || f.heldBytes > f.cfg.HoldBytes
}

func (f *Feed) unhold(seq uint64) {
	f.heldBytes -= len(f.held[seq])
	delete(f.held, seq)
}

func (f *Feed) forgetHeld() {
	clear(f.held)
	f.heldBytes = 0
}

// giveUp continues behind a gap. It reports no loss if the feed had nothing yet.
func (f *Feed) giveUp(reason string) {
	lowest := ^uint64(0)
	for seq := range f.held {
		if f.started && seq < f.next {
			f.unhold(seq) // a replay was faster
			continue
		}
		lowest = min(lowest, seq)
	}
	f.deadline = machine.Never
	if len(f.held) == 0 {
		return
	}
	if f.started && lowest != f.next {
		f.lose(reason)
	}
	if !f.started || lowest != f.next {
		f.start(lowest)
	}
	f.drain()
	if len(f.held) > 0 && !f.replaying { // another gap behind it
		if f.cfg.Gaps == GapsReplay {
			f.ask(f.firstMissing())
		} else {
			f.deadline = f.now.Add(f.cfg.Wait)
		}
	}
}
