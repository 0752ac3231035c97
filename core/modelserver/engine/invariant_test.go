package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// audit counts everything in the slow way: every block is free or has a known user, and every request is in exactly one
// place.
func audit(t *rapid.T, e *Engine) {
	generated := e.Generated()
	p, st := e.pool, e.Stats() // which first counts the steps so far
	if generated != st.GenerationTokens {
		t.Fatalf("%d tokens are generated; the counters say %d", generated, st.GenerationTokens)
	}
	inQueue := map[int32]int{}
	free := 0
	for i, prev := p.head, int32(0); i != 0; prev, i = i, p.nodes[i].next {
		x := &p.nodes[i]
		if x.prev != prev || x.refs != 0 || x.count < 1 {
			t.Fatalf("free queue is broken at node %d: %+v", i, *x)
		}
		inQueue[i] = len(inQueue)
		free += int(x.count)
	}
	if free != p.free || free > p.total {
		t.Fatalf("free queue holds %d blocks, counted %d of %d", free, p.free, p.total)
	}

	named, blank := 0, 0
	for i := range p.nodes {
		if p.nodes[i].anonymous() {
			blank += int(p.nodes[i].count)
		} else {
			named += int(p.nodes[i].count)
		}
	}
	if held, findable := e.KVBlocksHeld(); findable != named || held != p.total-blank {
		t.Fatalf("%d blocks can be found and %d hold something, counted %d and %d", named, p.total-blank, findable,
			held)
	}

	// Collect the references to each node and the users of each block.
	refs := map[int32]int32{}
	used := 0
	hold := func(h *holding) {
		used += int(h.blocks - h.indexed)
		indexed := int32(0)
		for i := h.leaf; i != 0; i = p.nodes[i].parent {
			if refs[i] == 0 {
				used += int(p.nodes[i].count)
			}
			refs[i]++
			indexed += p.nodes[i].count
		}
		if indexed != h.indexed || h.indexed > h.blocks {
			t.Fatalf("holding has %d blocks in the tree and thinks %d, of %d", indexed, h.indexed, h.blocks)
		}
	}
	for h := range e.held {
		x := e.held[h]
		hold(&x.holding)
	}
	places, ready := 0, 0
	decoding, kvTokens, bucket := 0, int64(0), make([]int32, len(e.batch.bucket))
	for s := range e.reqs {
		r := &e.reqs[s]
		h := r.holding
		switch r.phase {
		case phaseFree:
			continue
		case phaseDecode:
			places++
			kv := int32(r.kvOffset + e.batch.clock)
			decoding++
			kvTokens += int64(kv)
			bucket[e.bucketOf(r)]++
			if e.batch.clock-r.madeOffset-1 != int64(kv-r.prompt) {
				t.Fatalf("request %d of %d prompt tokens has made %d and holds KV of %d", r.id, r.prompt,
					e.batch.clock-r.madeOffset, kv)
			}
			if r.every && e.batch.watched[r.watch] != int32(s) {
				t.Fatalf("request %d is not watched", r.id)
			}
			h.blocks = p.blocksFor(kv)
			if e.run.active && e.run.begun > e.run.done && !r.starved && e.crossing(r) {
				h.blocks++
			}
			if made := int32(e.batch.clock - r.madeOffset); made < 1 || made > r.total {
				t.Fatalf("request %d has %d of %d tokens", r.id, made, r.total)
			}
		case phasePrefill, phasePaused:
			places++
		case phaseWaiting:
			if i := e.place(r); e.queue.slots[i] != int32(s) {
				t.Fatalf("request %d is not where it should be in the queue", r.id)
			}
			if r.ready {
				ready++
			}
			if h.blocks > 0 && !r.ready {
				t.Fatalf("request %d waits with %d blocks", r.id, h.blocks)
			}
		}
		hold(&h)
	}
	if used != p.used() {
		t.Fatalf("%d blocks are used by somebody, but %d are not free\n%+v", used, p.used(), e.Stats())
	}
	parked := e.ids.Len() - places - e.queue.len() - st.Pulling
	if places != e.batch.size || parked < 0 || parked > st.Paused || st.Running+st.Waiting != e.ids.Len() {
		t.Fatalf("%d requests: %d in the batch (%d), %d in the queue: %+v", e.ids.Len(), places, e.batch.size,
			e.queue.len(), st)
	}
	if decoding != e.batch.decoding || kvTokens != e.batch.kv || !slices.Equal(bucket, e.batch.bucket) {
		t.Fatalf("%d decode with %d tokens, %v; counted %d, %d, %v", decoding, kvTokens, bucket, e.batch.decoding,
			e.batch.kv, e.batch.bucket)
	}
	if ready != e.ready {
		t.Fatalf("%d requests in the queue have blocks, counted %d", ready, e.ready)
	}
	if e.batch.size > e.places {
		t.Fatalf("%d requests in %d places", e.batch.size, e.places)
	}

	cold, coldAt := 0, map[int32]int{}
	for i, prev := p.offload.head, int32(0); i != 0; prev, i = i, p.offload.beside(i).warmer {
		x := &p.nodes[i]
		if p.offload.beside(i).colder != prev || x.refs != 0 || x.cold < 1 {
			t.Fatalf("queue of cold nodes is broken at node %d: %+v", i, *x)
		}
		coldAt[i] = len(coldAt)
		cold += int(x.cold)
	}
	if cold != p.offload.used || cold > p.offload.total {
		t.Fatalf("%d blocks are cold, counted %d of %d", cold, p.offload.used, p.offload.total)
	}

	nodes, children := 0, map[int32]int32{}
	for i := range p.nodes {
		x := &p.nodes[i]
		if i == 0 || x.blocks() == 0 || x.anonymous() {
			continue
		}
		nodes++
		children[x.parent]++
		if x.refs != refs[int32(i)] {
			t.Fatalf("node %d has %d references, counted %d", i, refs[int32(i)], x.refs)
		}
		if found, _ := p.child(x.parent, &x.chain, x.start); found != int32(i) {
			t.Fatalf("node %d is not in the index", i)
		}
		if x.parent != 0 && p.nodes[x.parent].start+p.nodes[x.parent].blocks() != x.start {
			t.Fatalf("node %d does not continue its parent", i)
		}
		// A parent is never evicted before its child.
		if at, ok := inQueue[x.parent]; ok {
			if mine, free := inQueue[int32(i)]; free && mine > at || !free && x.count > 0 {
				t.Fatalf("node %d would be evicted after its parent %d", i, x.parent)
			}
		}
	}
	for i := range p.nodes {
		x := &p.nodes[i]
		if at, ok := coldAt[x.parent]; ok && i > 0 && x.blocks() > 0 && x.parent != 0 {
			if mine, ok := coldAt[int32(i)]; !ok || mine > at || x.count > 0 {
				t.Fatalf("node %d would be dropped after its parent %d", i, x.parent)
			}
		}
	}
	if nodes != len(p.index) {
		t.Fatalf("%d nodes, %d in the index", nodes, len(p.index))
	}
	for i := range p.nodes {
		if p.nodes[i].children != children[int32(i)] {
			t.Fatalf("node %d has %d children, counted %d", i, children[int32(i)], p.nodes[i].children)
		}
	}
	l := &e.loras
	if len(l.running) > e.cfg.MaxLoRAs || len(l.gpu) > e.cfg.MaxLoRAs || len(l.cpu) > e.cfg.MaxCPULoRAs {
		t.Fatalf("%d adapters run, %v in slots, %v in host memory; at most %d, %d and %d may", len(l.running), l.gpu,
			l.cpu, e.cfg.MaxLoRAs, e.cfg.MaxLoRAs, e.cfg.MaxCPULoRAs)
	}
	for a := range l.running {
		if !slices.Contains(l.gpu, a) {
			t.Fatalf("adapter %d runs and is in none of the slots: %v", a, l.gpu)
		}
	}
	for i, a := range l.gpu {
		if !slices.Contains(l.cpu, a) || slices.Contains(l.gpu[i+1:], a) {
			t.Fatalf("slots %v, host memory %v", l.gpu, l.cpu)
		}
	}
}

func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		e, all := s.play(t, rapid.Bool().Draw(t, "single"), func(e *Engine) { audit(t, e) })
		if e.InFlight() != 0 {
			t.Fatalf("%d requests never end: %+v", e.InFlight(), e.Stats())
		}
		if used := e.KVBlocksUsed(); used != 0 || len(e.held) != 0 {
			t.Fatalf("%d blocks and %d handles are left over", used, len(e.held))
		}
		st := e.Stats()
		if st.Accepted != st.Finished+st.Aborted || st.Running != 0 || st.Waiting != 0 || st.Paused != 0 ||
			st.Pulling != 0 {
			t.Fatalf("counters do not balance: %+v", st)
		}
		checkLives(t, &s, all)
	})
}

// checkLives checks what happened request by request: one beginning, one end,
// every token once.
func checkLives(t *rapid.T, s *story, all []string) {
	type life struct{ accepted, ended, first, tokens, total int }
	lives := map[RequestID]*life{}
	of := func(id RequestID) *life {
		if lives[id] == nil {
			lives[id] = &life{}
		}
		return lives[id]
	}
	for _, line := range all {
		var at int64
		var text string
		if i := strings.IndexByte(line, ' '); i > 0 {
			fmt.Sscan(line[:i], &at)
			text = line[i+1:]
		}
		var n, id int
		if _, err := fmt.Sscanf(text, "token %d of %d", &n, &id); err == nil {
			of(RequestID(id)).tokens++
			continue
		}
		var clock, kind string
		if k, _ := fmt.Sscanf(text, "%s %s %d", &clock, &kind, &id); k < 3 {
			if strings.HasPrefix(text, "step ") {
				var prefill, decode int
				fmt.Sscanf(text, "step %d %d", &prefill, &decode)
				if prefill+decode > s.cfg.MaxNumBatchedTokens || decode > s.cfg.MaxNumSeqs {
					t.Fatalf("a step computes %d prompt tokens for %d decoding: budget is %d tokens, %d requests",
						prefill, decode, s.cfg.MaxNumBatchedTokens, s.cfg.MaxNumSeqs)
				}
			}
			kind, _, _ = strings.Cut(kind, ":")
		}
		l := of(RequestID(id))
		switch strings.TrimSuffix(kind, ":") {
		case "Accepted":
			l.accepted++
		case "FirstToken":
			l.first++
		case "Finished", "Aborted":
			l.ended++
			if i := strings.LastIndex(text, ", "); i > 0 {
				fmt.Sscanf(text[i:], ", %d tokens", &l.total)
			} else {
				fmt.Sscanf(text[strings.LastIndex(text, ": "):], ": %d tokens", &l.total)
			}
		}
	}
	every := map[RequestID]bool{}
	for _, m := range s.messages {
		if m, ok := m.m.(*Submit); ok {
			every[m.ID] = m.Interest == EveryToken
		}
	}
	for id, l := range lives {
		if id == 0 {
			continue
		}
		if l.accepted != l.ended || l.first > l.accepted || (l.total > 0) != (l.first > 0) {
			t.Fatalf("request %d: %+v\n%s", id, *l, strings.Join(all, "\n"))
		}
		if every[id] && l.first+l.tokens != l.total {
			t.Fatalf("request %d wanted every token, saw %d+%d of %d\n%s", id, l.first, l.tokens, l.total,
				strings.Join(all, "\n"))
		}
	}
}

// The engine admits no request that the rules serve later while an earlier one waits, as long as all requests are of
// the same kind.
func TestQueueOrderIsRespected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		c := &s.cfg
		c.MaxNumPartialPrefills, c.MaxLongPartialPrefills = 0, 0
		order := map[RequestID]request{}
		for i, m := range s.messages {
			if m, ok := m.m.(*Submit); ok {
				m.Adapter, m.Remote = 0, RemoteKV{}
				r := request{id: m.ID, arrival: uint64(i)}
				if c.Policy == PolicyPriority {
					r.priority = m.Priority
				}
				order[m.ID] = r
			}
		}
		e, err := New(*c)
		if err != nil {
			t.Fatal(err)
		}
		var fx Effects
		waits := map[RequestID]bool{}
		read := func() {
			for _, f := range fx.List {
				switch f.Kind {
				case Accepted, Preempted:
					waits[f.Request] = true
				case Finished, Aborted:
					delete(waits, f.Request)
				case PrefillStarted:
					r := order[f.Request]
					for id := range waits {
						if other := order[id]; e.before(&other, &r) && !e.isParked(id) {
							t.Fatalf("%d was admitted before %d", f.Request, id)
						}
					}
					delete(waits, f.Request)
				}
			}
			fx.Reset()
		}
		for _, m := range s.messages {
			for at, ok := e.Next(); ok && at <= m.at; at, ok = e.Next() {
				e.Advance(at, &fx)
				read()
			}
			e.Input(m.at, m.m, &fx)
			read()
		}
		for at, ok := e.Next(); ok; at, ok = e.Next() {
			e.Advance(at, &fx)
			read()
		}
	})
}

func (e *Engine) isParked(id RequestID) bool {
	s, ok := e.ids.Get(id)
	return ok && e.reqs[s].phase == phaseParked
}

// The same story has the same course, however late the driver wakes the engine.
func TestLatenessChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		if rapid.IntRange(0, 4).Draw(t, "independent") == 0 {
			s.cfg.Batching = BatchingIndependent
			s.cfg.Prefill, s.cfg.TokenTime = Span{0, 3000}, Span{0, 50}
		}
		s.messages = slices.DeleteFunc(s.messages, func(m timed) bool {
			sub, ok := m.m.(*Submit)
			return ok && sub.Remote.Tokens > 0 // the driver has to answer these in time
		})
		run := func(late bool) []string {
			e, err := New(s.cfg)
			if err != nil {
				t.Fatal(err)
			}
			var fx Effects
			var all expansion
			read := func() {
				for i := range fx.List {
					all.add(&fx, &fx.List[i])
				}
				fx.Reset()
			}
			for i, m := range s.messages {
				for at, ok := e.Next(); !late && ok && at <= m.at; at, ok = e.Next() {
					e.Advance(at, &fx)
				}
				if late && i%3 == 0 {
					e.Advance((e.Now()+m.at)/2, &fx)
				}
				e.Input(m.at, m.m, &fx)
				read()
			}
			for at, ok := e.Next(); ok; at, ok = e.Next() {
				if late {
					at += 777
				}
				e.Advance(at, &fx)
			}
			read()
			return all.sorted()
		}
		if d := gocmp.Diff(run(false), run(true)); d != "" {
			t.Fatalf("woken in time (-) and late (+) differ:\n%s", d)
		}
		if d := gocmp.Diff(run(true), run(true)); d != "" {
			t.Fatalf("twice the same differs:\n%s", d)
		}
	})
}
