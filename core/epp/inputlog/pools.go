package inputlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// Pools gathers the pools of a log. Call Line with each line.
type Pools struct {
	// List has the pools in the order in which they appear.
	List []Pool

	of map[int]int // the place in List by picker
}

// Pool is the part of a pool that its picker's inputs show.
type Pool struct {
	Name string
	// Config is the EndpointPickerConfig's text, "" for the picker's default.
	Config string
	// Servers and Prefill are the largest numbers of model servers at one time: Prefill counts those that only prefill.
	// Ranks is the number of data-parallel ranks of a server, at least 1 where there are servers.
	Servers, Prefill, Ranks int
	// BlockSize, in tokens, and Blocks describe the KV cache of a server (of a rank). Both are 0 if no page has them.
	BlockSize, Blocks int
}

// Line takes one line.
func (p *Pools) Line(text []byte) error {
	switch {
	case bytes.HasPrefix(text, []byte(`{"log":`)), bytes.HasPrefix(text, []byte(`{"snapshot":`)):
	case !bytes.HasPrefix(text, []byte(`{"input":`)):
		return nil
	case !bytes.Contains(text, []byte(`"endpoints":`)) && !bytes.Contains(text, []byte("cache_config_info")):
		return nil
	}
	var x struct {
		Log      *Header
		Snapshot *struct {
			Picker int
			State  struct {
				Picker struct {
					Pool struct{ Endpoints []picker.SavedEndpoint }
				}
			}
		}
		Input *struct {
			Picker    int
			Endpoints []picker.Identity
			Objects   struct{ Endpoints []picker.Identity }
			Scraped   struct{ Page []family }
		}
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return fmt.Errorf("not a line of a log of inputs: %w", err)
	}
	switch {
	case x.Log != nil && x.Log.Format != Format:
		return &FormatError{x.Log.Format, x.Log.Version}
	case x.Log != nil:
		p.addHeader(x.Log)
	case x.Snapshot != nil:
		pool := p.pool(x.Snapshot.Picker)
		var list []picker.Identity
		for _, e := range x.Snapshot.State.Picker.Pool.Endpoints {
			list = append(list, e.Identity)
			pool.cache(int(e.BlockSize), int(e.Blocks))
		}
		pool.servers(list)
	case x.Input != nil:
		pool := p.pool(x.Input.Picker)
		pool.servers(x.Input.Endpoints)
		pool.servers(x.Input.Objects.Endpoints)
		for _, f := range x.Input.Scraped.Page {
			for _, s := range f.Samples {
				pool.cache(label(s.Labels, "block_size"), label(s.Labels, "num_gpu_blocks"))
			}
		}
	}
	return nil
}

// addHeader takes the header of a picker. Replicas of a picker have one pool, and its latest configuration counts.
func (p *Pools) addHeader(h *Header) {
	at := -1
	for i := range p.List {
		if p.List[i].Name == h.Pool {
			at = i
		}
	}
	if at < 0 {
		at = len(p.List)
		p.List = append(p.List, Pool{Name: h.Pool})
	}
	if p.of == nil {
		p.of = map[int]int{}
	}
	p.of[h.Picker] = at
	if p.List[at].Config = ""; h.Config != nil {
		p.List[at].Config = *h.Config
	}
}

// pool returns the pool of a picker. A picker without a header has a pool that nothing reads.
func (p *Pools) pool(number int) *Pool {
	if at, ok := p.of[number]; ok {
		return &p.List[at]
	}
	return &Pool{}
}

func (x *Pool) servers(list []picker.Identity) {
	servers, prefill := 0, 0
	for _, e := range list {
		if x.Ranks = max(x.Ranks, e.Rank+1); e.Rank > 0 {
			continue
		}
		if e.Labels[picker.LabelRole] == "prefill" {
			prefill++
		} else {
			servers++
		}
	}
	x.Servers, x.Prefill = max(x.Servers, servers), max(x.Prefill, prefill)
}

// most bounds the numbers that a page may give.
const most = 1 << 30

func (x *Pool) cache(size, blocks int) {
	if size > 0 && size <= most && blocks > 0 && blocks <= most {
		x.BlockSize, x.Blocks = size, blocks
	}
}

// label returns the number in a label, 0 without one.
func label(labels [][2]string, name string) int {
	for _, l := range labels {
		if n, err := strconv.Atoi(l[1]); l[0] == name && err == nil {
			return n
		}
	}
	return 0
}
