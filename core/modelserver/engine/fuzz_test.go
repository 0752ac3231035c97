package engine

import (
	"encoding/binary"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Any message at any time, in any order, of any size: nothing panics, and every
// request that was accepted ends exactly once.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 0, 10, 1, 5, 20, 0, 0, 1, 1, 30, 1, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 10, 1, 5, 20, 0, 0, 2, 1, 30, 2, 0, 0, 0, 0, 3, 9, 9, 9, 9, 9, 9, 9})
	f.Add([]byte{3, 0, 1, 1, 200, 200, 255, 7, 1, 1, 2, 1, 1, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 4096 {
			return
		}
		b := data[0]
		e, err := New(Config{
			Batching: Batching(b % 4), Policy: Policy(b >> 2 & 1), KVEvents: b>>3&1 == 1,
			KVLoadFailure: KVLoadFailure(b >> 4 & 1),
			Timer: bentTimer{base: FixedNanos(500), perPrefill: FixedNanos(10.7), slope: FixedNanos(0.3), knot: 50,
				jitter: b>>5&1 == 1},
			BlockSize: 4, NumGPUBlocks: 16, MaxNumSeqs: 3, MaxNumBatchedTokens: 20, KVHoldTimeout: 5000,
			LoRAs: LoRAs{Adapters: []AdapterID{1, 2}}, MaxInFlight: 20, Prefill: Span{100, 1000},
			TokenTime: Span{10, 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		var fx Effects
		open := map[RequestID]bool{}
		read := func() {
			last := machine.Time(0)
			for i := range fx.List {
				x := &fx.List[i]
				if x.At < last {
					t.Fatalf("%v comes after something at %v", x, last)
				}
				last = x.At
				switch x.Kind {
				case Accepted:
					open[x.Request] = true
				case Finished, Aborted:
					if !open[x.Request] {
						t.Fatalf("%v, but it is not in flight", x)
					}
					delete(open, x.Request)
				}
				_ = x.String()
				_ = fx.BlockHashes(x)
			}
			if len(open) != e.InFlight() {
				t.Fatalf("%d requests in flight, the engine says %d", len(open), e.InFlight())
			}
			fx.Reset()
		}
		now := machine.Time(0)
		for d := data[1:]; len(d) >= 8; d = d[8:] {
			now += machine.Time(d[1]) * machine.Time(d[2]&15) // may lag behind the engine
			if d[2] == 255 {
				now = 0
			}
			id := RequestID(d[3] % 16)
			wide := int(int16(binary.LittleEndian.Uint16(d[4:])))
			switch d[0] % 12 {
			case 0, 1, 2, 3:
				e.Input(now, &Submit{
					ID: id, PromptTokens: wide % 80, MaxTokens: int(d[6] % 40), StopAfter: int(d[7]),
					MinTokens: int(d[6] & 3),
					Interest:  Interest(d[7] & 3 % 3), HoldAfterFirst: d[7]&6 == 6, HoldKV: d[7]&24 == 24,
					Adapter: AdapterID(d[6] >> 6), Hashes: []uint64{uint64(d[6] & 1), uint64(d[6] & 2), 7, 7},
					Remote: RemoteKV{Tokens: max(0, int(d[7])-200), Handle: 1},
				}, &fx)
			case 4:
				e.Input(now, Abort{id}, &fx)
			case 5:
				e.Input(now, Resume{id}, &fx)
			case 6:
				e.Input(now, KVArrived{id}, &fx)
			case 7:
				e.Input(now, KVFailed{id}, &fx)
			case 8:
				e.Input(now, KVReleased{uint64(id)}, &fx)
			case 9:
				e.Input(now, Control{Op: Op(d[4]), Adapter: AdapterID(d[5])}, &fx)
			case 10:
				e.Advance(now+machine.Time(wide), &fx)
			case 11:
				if at, ok := e.Next(); ok {
					e.Advance(at, &fx)
				}
			}
			read()
		}
		// Answer every request that waits for the driver, until none is left.
		for range 10_000 {
			at, ok := e.Next()
			if ok {
				e.Advance(at, &fx)
				read()
				continue
			}
			if len(open) == 0 {
				break
			}
			for id := range RequestID(16) {
				e.Input(e.Now()+1, Resume{id}, &fx)
				e.Input(e.Now()+1, KVArrived{id}, &fx)
			}
			read()
		}
		if len(open) > 0 || e.KVBlocksUsed() > 0 {
			t.Fatalf("left over: %v, %d blocks, %+v", open, e.KVBlocksUsed(), e.Stats())
		}
	})
}
