package dataproducer

import (
	"sort"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// The plug-ins' parts of /debug/plugins/state. Fields have the real EPP's names; prompts and their hashes never appear.

type blocksState struct {
	Pods      []podBlocks `json:"pods"`
	TotalPods int         `json:"totalPods"`
	MaxPods   int         `json:"maxPods"`
}

type podBlocks struct {
	Pod    string `json:"pod"`
	Blocks int    `json:"blocks"`
}

// DumpState returns how many blocks are remembered per endpoint.
func (a *approxPrefix) DumpState(v *picker.View, limit int) any {
	s := blocksState{Pods: []podBlocks{}, MaxPods: limit}
	for i := range v.States {
		if n := a.index.blocks(v.States[i].Slot()); n > 0 {
			s.Pods = append(s.Pods, podBlocks{v.States[i].ID(), n})
		}
	}
	s.TotalPods = len(s.Pods)
	sort.SliceStable(s.Pods, func(i, j int) bool { return s.Pods[i].Blocks > s.Pods[j].Blocks })
	s.Pods = s.Pods[:min(len(s.Pods), limit)]
	return s
}

type loadState struct {
	Endpoints      []endpointLoad `json:"endpoints"`
	TotalEndpoints int            `json:"totalEndpoints"`
	MaxEndpoints   int            `json:"maxEndpoints"`
	Truncated      bool           `json:"truncated"`
}

type endpointLoad struct {
	Endpoint string `json:"endpoint"`
	Requests int64  `json:"requests"`
	Tokens   int64  `json:"tokens"`
}

// DumpState returns what is in flight per endpoint.
func (f *Inflight) DumpState(v *picker.View, limit int) any {
	s := loadState{Endpoints: []endpointLoad{}, MaxEndpoints: limit}
	for i := range v.States {
		st := &v.States[i]
		if st.Slot() < len(f.load) {
			r, t := f.Load(st.Slot())
			s.Endpoints = append(s.Endpoints, endpointLoad{st.ID(), r, t})
		}
	}
	s.TotalEndpoints = len(s.Endpoints)
	sort.SliceStable(s.Endpoints, func(i, j int) bool {
		a, b := &s.Endpoints[i], &s.Endpoints[j]
		return a.Requests+a.Tokens > b.Requests+b.Tokens
	})
	s.Truncated = len(s.Endpoints) > limit
	s.Endpoints = s.Endpoints[:min(len(s.Endpoints), limit)]
	return s
}
