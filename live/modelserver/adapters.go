package modelserver

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// Adapter is a LoRA adapter that a server loads at its start (vLLM: --lora-modules).
type Adapter struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Base string `json:"base_model_name"`
}

// adapters are the LoRA adapters that the server knows by name. The engine knows them by number.
type adapters struct {
	mu    sync.RWMutex
	known []knownAdapter
	next  engine.AdapterID
}

type knownAdapter struct {
	Adapter
	id engine.AdapterID
}

func (a *adapters) find(name string) (knownAdapter, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, k := range a.known {
		if k.Name == name {
			return k, true
		}
	}
	return knownAdapter{}, false
}

func (a *adapters) list() []knownAdapter {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.known)
}

func (a *adapters) add(x Adapter) engine.AdapterID {
	id, _ := a.load(x, false)
	return id
}

// load returns the engine's number for an adapter; a new name gets a new number. It returns false if the server already
// knows the name and may not load it again, and 0 if the server knows too many adapters.
func (a *adapters) load(x Adapter, again bool) (engine.AdapterID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.known {
		if k.Name == x.Name {
			return k.id, again
		}
	}
	if len(a.known) >= MaxAdapters {
		return 0, true
	}
	a.next++
	a.known = append(a.known, knownAdapter{x, a.next})
	return a.next, true
}

func (a *adapters) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = slices.DeleteFunc(a.known, func(k knownAdapter) bool { return k.Name == name })
}

// MaxAdapters limits how many adapters one server knows. maxAdapterText limits each text that describes an adapter, in
// bytes. Both bound the server's pages, which list all adapters.
const (
	MaxAdapters    = 10_000
	maxAdapterText = 1024
)

type adapterRequest struct {
	Name    string `json:"lora_name"`
	Path    string `json:"lora_path"`
	Base    string `json:"base_model_name"`
	Inplace bool   `json:"load_inplace"`
}

// loadAdapter answers POST /v1/load_lora_adapter.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	var q adapterRequest
	if !wire.ReadJSON(w, r, s.opts.MaxBodyBytes, &q, false) {
		return
	}
	if q.Name == "" || q.Path == "" {
		wire.Answer(w, openai.InvalidUserInput("Both 'lora_name' and 'lora_path' must be provided."))
		return
	}
	if max(len(q.Name), len(q.Path), len(q.Base)) > maxAdapterText {
		wire.Answer(w, openai.BadRequest("lora_name",
			"lora_name, lora_path and base_model_name: expected at most %d bytes each.", maxAdapterText))
		return
	}
	var id engine.AdapterID
	free := !slices.Contains(s.opts.Models, q.Name)
	if free {
		id, free = s.adapters.load(Adapter{q.Name, q.Path, q.Base}, q.Inplace)
	}
	switch {
	case !free:
		wire.Answer(w,
			openai.InvalidUserInput(
				"The lora adapter '%s' has already been loaded. If you want to load the adapter in "+
					"place, set 'load_inplace' to True.", q.Name))
		return
	case id == 0:
		wire.Answer(w, openai.BadRequest("lora_name", "The server already knows %d adapters; unload one first.",
			MaxAdapters))
		return
	}
	if !s.engine.Operate(engine.Control{Op: engine.OpLoadAdapter, Adapter: id}) {
		s.adapters.remove(q.Name)
		wire.Answer(w, openai.Failed("The engine did not load the adapter '%s'.", q.Name))
		return
	}
	if s.cfg.LoRALoadTime > 0 && !pause.For(r.Context(), (s.cfg.LoRALoadTime+s.cfg.LoRAActivateTime).Duration()) {
		return
	}
	wire.Write(w, http.StatusOK, "text/plain; charset=utf-8",
		fmt.Appendf(nil, "Success: LoRA adapter '%s' added successfully.", q.Name))
}

// unloadAdapter answers POST /v1/unload_lora_adapter.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	var q adapterRequest
	if !wire.ReadJSON(w, r, s.opts.MaxBodyBytes, &q, false) {
		return
	}
	if q.Name == "" {
		wire.Answer(w, openai.InvalidUserInput("'lora_name' needs to be provided to unload a LoRA adapter."))
		return
	}
	known, loaded := s.adapters.find(q.Name)
	if !loaded {
		wire.Answer(w, openai.NotFound("", "The lora adapter '%s' cannot be found.", q.Name))
		return
	}
	s.adapters.remove(q.Name)
	s.engine.Operate(engine.Control{Op: engine.OpUnloadAdapter, Adapter: known.id})
	wire.Write(w, http.StatusOK, "text/plain; charset=utf-8",
		fmt.Appendf(nil, "Success: LoRA adapter '%s' removed successfully.", q.Name))
}
