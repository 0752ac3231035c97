package preview

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// Capture saves a live picker's state: endpoints with their metrics, and the objectives' priorities. served are its
// newest decisions, oldest first. Requests in flight and sessions go into the state. Prompts do not, since the picker
// does not keep them; a live state therefore has no prefix histories.
func Capture(p *picker.Picker, served []*picker.Decision) *State {
	s := &State{Live: true, Objectives: p.Objects().Objectives}
	v := p.Pool().View()
	at := map[string]int{}
	for i := range v.States {
		st := &v.States[i]
		at[st.ID()] = i
		e := Endpoint{Name: st.Name, Namespace: st.Namespace, Address: st.Address, Port: st.Port, Labels: st.Labels,
			Waiting: st.Waiting, Running: st.Running, KV: st.KVUsage, Custom: st.Custom, BlockSize: st.CacheBlockSize,
			Blocks: st.CacheBlocks}
		if st.LoRA != nil {
			e.LoRA = &LoRA{st.LoRA.Max, st.LoRA.Running, st.LoRA.Waiting}
		}
		if x := st.Announced; x != nil {
			e.Ready, e.Sessions, e.QPS, e.MaxQPS = new(x.Ready), x.Sessions, x.QPS, x.MaxQPS
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	for _, d := range served {
		if d == nil || d.Err != nil || d.Request.Body == nil || len(d.Targets) == 0 {
			continue
		}
		i, ok := at[d.Targets[0].Endpoint.ID()]
		if !ok {
			continue
		}
		r := Request{Tokens: max(1, d.Request.Tokens), Held: d.InForce(), Headers: map[string]string{}}
		for _, name := range remembered {
			if v, ok := d.Request.Headers.Lookup(name); ok {
				r.Headers[name] = v
			}
		}
		if r.Held || len(r.Headers) > 0 {
			s.Endpoints[i].Served = append(s.Endpoints[i].Served, r)
		}
	}
	return s
}

// remembered are the headers that influence later decisions. None of them is a secret.
var remembered = []string{picker.HeaderSessionID, picker.HeaderSessionToken, picker.HeadersObjective[0],
	picker.HeadersObjective[1],
	picker.HeadersFairness[0], picker.HeadersFairness[1], picker.HeaderProfile}
