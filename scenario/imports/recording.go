package imports

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/scenario"
)

// Recording is a deployment as the inputs of its endpoint picker show it.
type Recording struct {
	Requests []workload.Recorded
	// Settings make a scenario with one pool (scenario.DeployedFile) the recorded pool.
	Settings []scenario.Setting
	Notes    []string // what the recording has, and what it lacks, a sentence each
}

// ReadRecording reads a recording. each calls its arguments with the lines of the log of inputs and with the other
// lines. With alone, the recording describes the pool, too, and must have one.
func ReadRecording(file string, alone bool,
	each func(line func([]byte) error, event func([]byte)) error) (*Recording, error) {
	var q inputlog.Requests
	var pools inputlog.Pools
	err := each(func(line []byte) error {
		return cmp.Or(pools.Line(line), q.Line(line))
	}, q.Event)
	switch {
	case err != nil:
		return nil, err
	case len(q.List) == 0:
		return nil, fmt.Errorf("%s has no request with a prompt; expected a recording of a picker with requests", file)
	}
	r := &Recording{Requests: q.List}
	r.note("%s has %d requests in %.4g s", file, len(q.List), q.List[len(q.List)-1].At.Seconds())
	if q.Without > 0 {
		r.note("left out: %d requests without a prompt", q.Without)
	}
	if n := q.Unknown(); n > 0 {
		r.note("the recording lacks the answer's length of %d requests: the model servers choose it", n)
	}
	if !alone {
		return r, nil
	}
	if len(pools.List) != 1 {
		var names []string
		for _, p := range pools.List {
			names = append(names, p.Name)
		}
		return nil, fmt.Errorf("%s has %d pools (%s); expected one, or a scenario that describes them", file,
			len(pools.List), strings.Join(names, ", "))
	}
	r.describe(&pools.List[0], "--recording "+file)
	return r, nil
}

func (r *Recording) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// describe sets the fields of the pool.
func (r *Recording) describe(p *inputlog.Pool, by string) {
	set := func(path, value string) {
		r.Settings = append(r.Settings, scenario.Setting{Path: "pools[0]." + path, Value: value, By: by})
	}
	number := func(path string, n int) {
		if n > 0 {
			set(path, strconv.Itoa(n))
		}
	}
	count, model := map[string]int{}, ""
	for i := range r.Requests {
		m := r.Requests[i].Model
		if count[m]++; m != "" && count[m] > count[model] {
			model = m
		}
	}
	if model != "" {
		set("model", strconv.Quote(model))
	}
	if p.Config != "" {
		set("epp.config", p.Config)
	}
	number("replicas", p.Servers)
	if p.Prefill > 0 {
		set("sidecar", "routing")
		number("disaggregation.prefillReplicas", p.Prefill)
	}
	if p.Ranks > 1 {
		number("modelServer.dataParallelSize", p.Ranks)
	}
	number("modelServer.blockSize", p.BlockSize)
	number("modelServer.numGPUBlocks", p.Blocks)
	lacks := "the accelerator and the engines' flags: --accelerator and --set give those that differ from the defaults"
	if p.Blocks == 0 {
		lacks = "the size of the KV caches, " + lacks
	}
	r.note("the pool is the recorded one, with %d model servers for %.80q; the recording lacks %s",
		p.Servers+p.Prefill, model, lacks)
}
