package diagnose

import (
	"fmt"
	"math"
	"strings"
)

// Name is a figure's name.
type Name string

// The figures that the trees read. Shares are from 0 to 1.
const (
	Attainment Name = "attainment"   // share of the requests that keep their objectives
	Failures   Name = "failures"     // share of the requests that do not complete
	MissedTTFT Name = "missed ttft"  // share of the requests beyond the objective of the time to the first token
	MissedTPOT Name = "missed tpot"  // likewise, of the time of each further token
	Latency90  Name = "latency p90"  // seconds from a request to its first token; 90th percentile
	Queue      Name = "queue"        // requests that wait at a model server, on average over time
	QueuePeak  Name = "queue peak"   // likewise, the most
	QueueLeast Name = "least queue"  // of the servers, the least average queue
	BatchUse   Name = "batch use"    // share of the places in the batch (max-num-seqs) in use
	KVUse      Name = "KV use"       // share of the KV blocks in use
	Preempted  Name = "preemptions"  // for each request
	HitRate    Name = "hit rate"     // share of the prompts' tokens that were cached
	GPUUse     Name = "GPU use"      // share of the time in which an accelerator computes
	PromptUse  Name = "prompt use"   // the part of it that prompts take
	Balance    Name = "balance"      // requests of the most chosen endpoint over the mean
	Misplaced  Name = "misplaced"    // share of the picks that name a prefill server
	Pick90     Name = "EPP time"     // seconds in which the picker decides; 90th percentile
	Transfer90 Name = "KV transfer"  // seconds from asking for a KV cache until it can be used; 90th percentile
	QueueShare Name = "queue share"  // parts of the median time to the first token: waiting at model servers,
	PickShare  Name = "EPP share"    // the picker,
	MoveShare  Name = "move share"   // KV transfers,
	WorkShare  Name = "work share"   // computing the prompt,
	WayShare   Name = "way share"    // and everything between the parts
	Part1      Name = "part 1 sent"  // requests that are held open
	Part1There Name = "part 1 there" // that a model server received
	FirstSeen  Name = "first seen"   // whose first token the picker saw
	Part2      Name = "part 2 sent"  // that were finished
	IndexGot   Name = "index events" // KV events that an index received
	IndexLacks Name = "index lacks"  // share of the engines' blocks that an index lacks
	IndexUse   Name = "index memory" // of the KV-Cache Manager over its limit
)

// Figure is a measured value.
type Figure struct {
	Name  Name    `json:"figure"`
	Value float64 `json:"value"`
	// Where is the part that was measured: servers, a pool, an endpoint. It is empty for all together.
	Where string `json:"where,omitempty"`
	// When is the moment or the stretch of the value in words, such as "at 12.5s"; empty for the whole run.
	When string `json:"when,omitempty"`
}

// words are the names of figures for people, and their units: % for a share, s for seconds, else a noun.
var words = map[Name][2]string{
	Attainment: {"requests within their objectives", "%"},
	Failures:   {"requests that failed", "%"},
	MissedTTFT: {"requests whose first token came too late", "%"},
	MissedTPOT: {"requests whose further tokens came too slowly", "%"},
	Latency90:  {"time to the first token (p90)", "s"},
	Queue:      {"queue", "requests"},
	QueuePeak:  {"longest queue", "requests"},
	QueueLeast: {"shortest queue", "requests"},
	BatchUse:   {"places in the batch in use", "%"},
	KVUse:      {"KV blocks in use", "%"},
	Preempted:  {"preemptions", "a request"},
	HitRate:    {"cache hit rate", "%"},
	GPUUse:     {"GPU use", "%"},
	PromptUse:  {"GPU use by prompts", "%"},
	Balance:    {"most chosen endpoint", "times the mean"},
	Misplaced:  {"requests for which the picker chose a prefill server to decode", "%"},
	Pick90:     {"EPP time (p90)", "s"},
	Transfer90: {"KV transfer (p90)", "s"},
	QueueShare: {"waiting at model servers, of the time to the first token", "%"},
	PickShare:  {"EPP time, of the time to the first token", "%"},
	MoveShare:  {"KV transfers, of the time to the first token", "%"},
	WorkShare:  {"computing prompts, of the time to the first token", "%"},
	WayShare:   {"between the parts, of the time to the first token", "%"},
	Part1:      {"part 1 sent", "requests"},
	Part1There: {"part 1 received by model servers", "requests"},
	FirstSeen:  {"first token seen by the picker", "requests"},
	Part2:      {"part 2 sent", "requests"},
	IndexGot:   {"KV events received by the index", "events"},
	IndexLacks: {"blocks of the engines that the index lacks", "%"},
	IndexUse:   {"memory of the KV-Cache Manager, of its limit", "%"},
}

// number returns a value with its unit.
func (n Name) number(v float64) string {
	switch unit := words[n][1]; unit {
	case "%":
		return fmt.Sprintf("%.3g%%", 100*v)
	case "s":
		if v < 1 {
			return fmt.Sprintf("%.3gms", 1e3*v)
		}
		return fmt.Sprintf("%.3gs", v)
	default:
		return fmt.Sprintf("%.3g %s", v, unit)
	}
}

// String returns words such as "queue 31.2 requests (decode servers, at 12s)".
func (f *Figure) String() string {
	text := words[f.Name][0] + " " + f.Name.number(f.Value)
	if beside := strings.Trim(f.Where+", "+f.When, ", "); beside != "" {
		text += " (" + beside + ")"
	}
	return text
}

// most returns the figure with the greatest value, least the one with the smallest. They return nil where the figure is
// unknown.
func (f *Facts) most(n Name) *Figure  { return f.extreme(n, func(a, b float64) bool { return a > b }) }
func (f *Facts) least(n Name) *Figure { return f.extreme(n, func(a, b float64) bool { return a < b }) }

func (f *Facts) extreme(n Name, beyond func(a, b float64) bool) (found *Figure) {
	for i := range f.Figures {
		if x := &f.Figures[i]; x.Name == n && !math.IsNaN(x.Value) && (found == nil || beyond(x.Value, found.Value)) {
			found = x
		}
	}
	return found
}

// value returns the greatest value of a figure, 0 where it is unknown.
func (f *Facts) value(n Name) float64 {
	if x := f.most(n); x != nil {
		return x.Value
	}
	return 0
}

// threshold is a limit of the guide.
type threshold struct {
	of    Name
	limit float64
	below bool
	from  string // its source; "" for one of windtunnel's own
}

// find returns the worst figure, nil where it is unknown, and whether it is beyond the threshold.
func (t *threshold) find(f *Facts) (x *Figure, beyond bool) {
	if t.below {
		x = f.least(t.of)
		return x, x != nil && x.Value < t.limit
	}
	x = f.most(t.of)
	return x, x != nil && x.Value > t.limit
}

// text returns the comparison in words.
func (t *threshold) text(x *Figure, beyond bool) string {
	how := map[bool]string{true: "above", false: "not above"}[beyond]
	if t.below {
		how = map[bool]string{true: "below", false: "not below"}[beyond]
	}
	text := fmt.Sprintf("%s: %s %s", x, how, t.of.number(t.limit))
	if t.from != "" {
		text += " (" + t.from + ")"
	}
	return text
}

// far returns how far a value is beyond the threshold: 1 and more is far. For a share, 1 is half of the way to the end
// of the scale; for anything else, it is twice the threshold.
func (t *threshold) far(x *Figure) float64 {
	end := 2 * t.limit
	switch {
	case t.below:
		end = t.limit / 2
	case words[t.of][1] == "%":
		end = (1 + t.limit) / 2
	}
	return (x.Value - t.limit) / (end - t.limit)
}
