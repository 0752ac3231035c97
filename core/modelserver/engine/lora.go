package engine

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// loras holds the adapters that exist and run, and where they are. An adapter that runs is in one of MaxLoRAs slots of
// the accelerator. It stays there after its last request ends, until another adapter needs the slot. MaxCPULoRAs
// adapters, including those in the slots, are in host memory. Both evict the least recently used adapter, but never one
// that runs. (vLLM: LRUCacheWorkerLoRAManager and LRUCacheLoRAModelManager.) Loading an adapter lengthens the step that
// first needs it.
type loras struct {
	known   map[AdapterID]bool
	running map[AdapterID]int // requests in the batch
	gpu     []AdapterID       // least recently used first
	cpu     []AdapterID
	owed    Fixed // time that explicit loads add to the next step
}

// A server's default times: for an adapter of rank 16 on all linear layers of an 8B model, 84 MB in 16 bits.
const (
	// DefaultLoRALoadTime is the time from disk to host memory: 84 MB at the 3 GB/s of an NVMe disk.
	DefaultLoRALoadTime = 28 * machine.Millisecond
	// DefaultLoRAActivateTime is the time from host memory to the accelerator. Chen et al. (Punica: Multi-Tenant LoRA
	// Serving, MLSys 2024, section 5.2) load "the entire model in 2 ms" over PCIe 4.0 x16. 84 MB at 25 GB/s take
	// longer.
	DefaultLoRAActivateTime = 3400 * machine.Microsecond
)

// resetAdapters loads the adapters of the configuration, one after the other, as vLLM does when it starts. The last
// ones stay in memory.
func (e *Engine) resetAdapters() {
	e.loras = loras{known: make(map[AdapterID]bool, len(e.cfg.Adapters)), running: map[AdapterID]int{}}
	for _, a := range e.cfg.Adapters {
		e.loras.known[a] = true
		e.bringIn(a)
	}
}

// adapterFits reports whether a request's adapter runs already or a slot is available.
func (e *Engine) adapterFits(r *request) bool {
	return r.adapter == 0 || e.loras.running[r.adapter] > 0 || len(e.loras.running) < e.cfg.MaxLoRAs
}

func (e *Engine) useAdapter(r *request) {
	if r.adapter == 0 {
		return
	}
	e.loading += e.bringIn(r.adapter)
	e.loras.running[r.adapter]++
}

func (e *Engine) unuseAdapter(r *request) {
	l := &e.loras
	if r.adapter == 0 {
		return
	}
	if l.running[r.adapter]--; l.running[r.adapter] == 0 {
		delete(l.running, r.adapter)
		l.gpu, l.cpu = touched(l.gpu, r.adapter), touched(l.cpu, r.adapter)
	}
}

// loadAdapter is vLLM's add_lora: it loads the adapter at once, between two steps. In an idle engine, no request waits
// for that.
func (e *Engine) loadAdapter(a AdapterID) {
	e.loras.known[a] = true
	if e.independent() {
		return
	}
	cost := e.bringIn(a)
	if e.ids.Len() > 0 && cost > 0 {
		e.loras.owed += cost
		e.disturb()
	}
}

// bringIn puts an adapter into a slot and returns the time that this takes. If all slots run other adapters, which
// admission rules out, it stops at host memory.
func (e *Engine) bringIn(a AdapterID) (cost Fixed) {
	l := &e.loras
	if slices.Contains(l.cpu, a) {
		l.cpu = touched(l.cpu, a)
	} else {
		if len(l.cpu) >= e.cfg.MaxCPULoRAs {
			gone := l.idle(l.cpu)
			if gone == 0 {
				return 0
			}
			l.cpu, l.gpu = without(l.cpu, gone), without(l.gpu, gone)
		}
		l.cpu = append(l.cpu, a)
		cost += ToFixed(e.cfg.LoRALoadTime)
		e.stats.LoRALoads++
	}
	if slices.Contains(l.gpu, a) {
		l.gpu = touched(l.gpu, a)
		return cost
	}
	if len(l.gpu) >= e.cfg.MaxLoRAs {
		gone := l.idle(l.gpu)
		if gone == 0 {
			return cost
		}
		l.gpu = without(l.gpu, gone)
	}
	l.gpu = append(l.gpu, a)
	e.stats.LoRAActivations++
	return cost + ToFixed(e.cfg.LoRAActivateTime)
}

// idle returns the least recently used adapter of a list that does not run; 0 if all run.
func (l *loras) idle(list []AdapterID) AdapterID {
	for _, a := range list {
		if l.running[a] == 0 {
			return a
		}
	}
	return 0
}

func touched(list []AdapterID, a AdapterID) []AdapterID {
	if n := len(list); n > 0 && list[n-1] == a {
		return list
	}
	return append(without(list, a), a)
}

func without(list []AdapterID, a AdapterID) []AdapterID {
	if i := slices.Index(list, a); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// AdaptersInMemory appends the adapters in a tier's memory to dst, the least recently used first: those in the
// accelerator's slots, or those in host memory.
func (e *Engine) AdaptersInMemory(t Tier, dst []AdapterID) []AdapterID {
	if t == TierCPU {
		return append(dst, e.loras.cpu...)
	}
	return append(dst, e.loras.gpu...)
}
