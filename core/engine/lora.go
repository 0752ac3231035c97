package engine

import "slices"

// loras is which adapters exist, run, and lie in host memory. In one step at
// most MaxLoRAs different ones run; bringing one in from disk lengthens the
// step that first needs it.
type loras struct {
	known   map[AdapterID]bool
	running map[AdapterID]int // requests in the batch
	recent  []AdapterID       // in host memory, least recently used first
}

func (e *Engine) resetAdapters() {
	l := loras{known: make(map[AdapterID]bool, len(e.cfg.Adapters)), running: map[AdapterID]int{}}
	for _, a := range e.cfg.Adapters {
		l.known[a] = true
	}
	e.loras = l
}

// adapterFits is whether a request's adapter runs already or there is a slot.
func (e *Engine) adapterFits(r *request) bool {
	return r.adapter == 0 || e.loras.running[r.adapter] > 0 || len(e.loras.running) < e.cfg.MaxLoRAs
}

func (e *Engine) useAdapter(r *request) {
	l := &e.loras
	if r.adapter == 0 {
		return
	}
	l.running[r.adapter]++
	if i := slices.Index(l.recent, r.adapter); i >= 0 {
		l.recent = slices.Delete(l.recent, i, i+1)
	} else {
		e.loading += ToFixed(e.cfg.LoRALoadTime)
		if len(l.recent) == e.cfg.MaxCPULoRAs {
			l.recent = slices.Delete(l.recent, 0, 1)
		}
	}
	l.recent = append(l.recent, r.adapter)
}

func (e *Engine) unuseAdapter(r *request) {
	l := &e.loras
	if r.adapter == 0 {
		return
	}
	if l.running[r.adapter]--; l.running[r.adapter] == 0 {
		delete(l.running, r.adapter)
	}
}

// RunningAdapters appends the adapters of requests in the batch to dst, and
// WaitingAdapters those of requests that wait and do not run, both in order of
// their numbers: vLLM's lora_requests_info.
func (e *Engine) RunningAdapters(dst []AdapterID) []AdapterID {
	n := len(dst)
	for a := range e.loras.running {
		dst = append(dst, a)
	}
	slices.Sort(dst[n:])
	return dst
}

// WaitingAdapters is described with RunningAdapters.
func (e *Engine) WaitingAdapters(dst []AdapterID) []AdapterID {
	n := len(dst)
	for i := range e.queue.len() {
		a := e.reqs[e.queue.at(i)].adapter
		if a != 0 && e.loras.running[a] == 0 && !slices.Contains(dst[n:], a) {
			dst = append(dst, a)
		}
	}
	slices.Sort(dst[n:])
	return dst
}
