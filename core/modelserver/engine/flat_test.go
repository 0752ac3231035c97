package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// flat is the KV cache spelled out block by block, in the way vLLM's V1 block
// pool keeps it: every block has an id, a hash once it is full, and a place in
// the free queue when nobody uses it. The tree must behave as if it were this.
type flat struct {
	size   int
	hash   []uint64         // by block; 0: none
	free   []int            // block ids, evicted from the front
	cached map[uint64][]int // hash to the blocks that hold it, oldest first
}

func newFlat(blocks, size int) *flat {
	f := &flat{size: size, hash: make([]uint64, blocks), cached: map[uint64][]int{}}
	for i := range blocks {
		f.free = append(f.free, i)
	}
	return f
}

func (f *flat) lookup(hashes []uint64, limit int) (found []int) {
	for _, h := range hashes[:min(limit, len(hashes))] {
		c := f.cached[h]
		if len(c) == 0 {
			break
		}
		found = append(found, c[0])
	}
	return found
}

// take does the same as admission: it removes the found blocks from the free queue, and evicts new ones from its front.
// nil: too few.
func (f *flat) take(found []int, n int) []int {
	idle := 0
	for _, b := range found {
		if slices.Contains(f.free, b) {
			idle++
		}
	}
	if n+idle > len(f.free) {
		return nil
	}
	blocks := slices.Clone(found)
	f.free = slices.DeleteFunc(f.free, func(b int) bool { return slices.Contains(found, b) })
	for range n {
		b := f.free[0]
		f.free = f.free[1:]
		if h := f.hash[b]; h != 0 {
			f.cached[h] = slices.DeleteFunc(f.cached[h], func(x int) bool { return x == b })
			if len(f.cached[h]) == 0 {
				delete(f.cached, h)
			}
			f.hash[b] = 0
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func (f *flat) commit(blocks []int, hashes []uint64, full int) {
	for i, b := range blocks[:full] {
		if f.hash[b] == 0 {
			f.hash[b] = hashes[i]
			f.cached[hashes[i]] = append(f.cached[hashes[i]], b)
		}
	}
}

func (f *flat) drop(blocks []int) {
	for _, b := range slices.Backward(blocks) {
		f.free = append(f.free, b)
	}
}

// The tree of runs finds, evicts and keeps exactly what a flat pool of blocks
// would. Requests of one family share prefixes, one after the other. (Where the
// same content is computed twice, vLLM keeps both copies and the tree one, so
// that is left out here.)
func TestPrefixTreeIsAFlatCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		total := rapid.IntRange(4, 60).Draw(t, "blocks")
		p := newPool(&Config{BlockSize: size, NumGPUBlocks: total})
		p.forgets = rapid.Bool().Draw(t, "forgets")
		f := newFlat(total, size)
		type lease struct {
			h      holding
			blocks []int
			hashes []uint64
			full   int
		}
		generated, own := uint64(0), map[uint64]bool{}
		leases := make([]*lease, 3) // one per family
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			family := rapid.IntRange(0, 2).Draw(t, "family")
			l := leases[family]
			switch {
			case l == nil:
				n := rapid.IntRange(1, 12).Draw(t, "full blocks")
				depart, branch := rapid.IntRange(0, 12).Draw(t, "departs"), rapid.IntRange(0, 3).Draw(t, "branch")
				l = &lease{full: n}
				for i := range 24 {
					h := uint64(family*1000 + i + 1)
					if i >= depart {
						h += uint64(10_000*(branch+1) + 1_000_000*(depart+1))
					}
					l.hashes = append(l.hashes, mix(h))
				}
				l.h.chain = chain{hashes: l.hashes, key: mix(generated + 1)}
				if p.forgets {
					l.h.hashes = l.hashes[:n]
				}
				for i := n; i < 24; i++ { // what it generates is its own
					generated++
					l.hashes[i] = mix(1<<40 + generated)
					own[l.hashes[i]] = true
				}
				const extra = 1 // a partial last block
				limit := (n*size + extra - 1) / size
				found, want := p.lookup(&l.h.chain, int32(limit)), f.lookup(l.hashes, limit)
				if int(found.blocks) != len(want) {
					t.Fatalf("found %d blocks, want %d", found.blocks, len(want))
				}
				more := n + extra - len(want)
				fits := more+int(found.idle) <= p.free
				if l.blocks = f.take(want, more); (l.blocks != nil) != fits {
					t.Fatalf("%d more and %d idle of %d free: fits %v", more, found.idle, p.free, fits)
				}
				if !fits {
					continue
				}
				p.share(&l.h, found, 1)
				p.grow(&l.h, int32(more))
				p.commit(&l.h, int32(n), 1)
				f.commit(l.blocks, l.hashes, n)
				leases[family] = l
			case rapid.IntRange(0, 2).Draw(t, "go on") == 0 && len(l.blocks) < 24 && p.free > 0:
				b := f.take(nil, 1)
				l.blocks = append(l.blocks, b...)
				p.grow(&l.h, 1)
				l.full = len(l.blocks) - 1
				p.commit(&l.h, int32(l.full), 1)
				f.commit(l.blocks, l.hashes, l.full)
			default:
				p.leave(&l.h)
				f.drop(l.blocks)
				leases[family] = nil
			}
			if p.free != len(f.free) {
				t.Fatalf("%d blocks are free, want %d", p.free, len(f.free))
			}
			var have, want []uint64
			for i := range p.nodes {
				if x := &p.nodes[i]; i > 0 && !x.anonymous() {
					for k := range x.count {
						if h := x.chain.at(x.start + k); !p.forgets || int(x.start+k) < len(x.hashes) {
							have = append(have, h)
						}
					}
				}
			}
			for h := range f.cached {
				if !p.forgets || !own[h] {
					want = append(want, h)
				}
			}
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Fatalf("cached: %x, want %x", have, want)
			}
		}
	})
}
