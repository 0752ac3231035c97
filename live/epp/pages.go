package epp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/preview"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Pages are the picker's own pages on the metrics listener: /debug/decisions
// (the newest first; ?request=ID for one, ?limit=N), /debug/plugins/state, and
// /debug/state, the pool as windtunnel preview --state takes it.
func (k *Picking) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /debug/decisions":     http.HandlerFunc(k.decisionsPage),
		"GET /debug/plugins/state": http.HandlerFunc(k.statePage),
		"GET /debug/state":         http.HandlerFunc(k.poolPage),
	}
}

// Decisions are the newest remembered decisions, explained; of one request when
// id is not empty, as record.Named finds it. limit bounds them.
func (k *Picking) Decisions(id string, limit int) []*picker.Explanation {
	out := []*picker.Explanation{}
	k.With(func(m *core.Machine, _ machine.Time) {
		history := m.History()
		for n := len(history) - 1; n >= 0 && len(out) < limit; n-- {
			if d := history[n]; id == "" || record.Named(id, d.Request.ID) {
				out = append(out, d.Explain())
			}
		}
	})
	return out
}

func (k *Picking) decisionsPage(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > 1000 {
		limit = 50
	}
	writeJSON(w, k.Decisions(r.URL.Query().Get("request"), limit))
}

func (k *Picking) poolPage(w http.ResponseWriter, _ *http.Request) {
	var s *preview.State
	k.With(func(m *core.Machine, _ machine.Time) { s = preview.Capture(m.Picker(), m.History()) })
	writeJSON(w, s)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("content-type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client left
}

// maxDumped is the number of endpoints in a plug-in's state.
const maxDumped = 100

// pluginState is one plug-in on /debug/plugins/state.
type pluginState struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	State   any    `json:"state,omitempty"`
	Message string `json:"message,omitempty"`
}

func (k *Picking) statePage(w http.ResponseWriter, _ *http.Request) {
	out := struct {
		Timestamp time.Time              `json:"timestamp"`
		Plugins   map[string]pluginState `json:"plugins"`
	}{time.Now().UTC(), map[string]pluginState{}}
	k.With(func(m *core.Machine, now machine.Time) {
		p := m.Picker()
		for _, pl := range p.Plugins() {
			s := pluginState{Name: pl.Name(), Type: pl.Type()}
			if pl.Type() == flowcontrol.ProgramAware {
				s.State = programs(m, now)
			} else if d, ok := pl.(interface {
				DumpState(v *picker.View, limit int) any
			}); ok {
				s.State = d.DumpState(p.Pool().View(), maxDumped)
			} else {
				s.Message = "plugin does not support state collection"
			}
			out.Plugins[pl.Name()] = s
		}
	})
	writeJSON(w, out)
}

// programs is the state of program-aware-fairness, which flow control keeps.
func programs(m *core.Machine, now machine.Time) any {
	state := struct {
		Total    int     `json:"totalPrograms"`
		InFlight int     `json:"totalInFlight"`
		Index    float64 `json:"fairnessIndex"`
	}{Index: 1}
	if fc := m.FlowControl(); fc != nil {
		s := fc.Snapshot(now)
		state.Index = s.FairnessIndex
		for i := range s.Programs {
			if s.Programs[i].Weighed {
				state.Total++
			}
			state.InFlight += s.Programs[i].InFlight
		}
	}
	return state
}
