package epp

import (
	"cmp"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
)

const (
	// maxSeries bounds the combinations of labels that clients can make. Each is
	// some 240 lines of the metrics page, 60 kB, and 35 kB of memory, so that
	// strangers can bring the page to 18 MB and no further.
	maxSeries = 200
	// maxLabelBytes bounds what one of them may choose for a label.
	maxLabelBytes = 256
	// otherLabel stands for all that came after the bound was reached.
	otherLabel = "other"
)

// series holds the labels of a metric that clients choose.
type series struct {
	model, target, fairness string
	priority                int
}

// labels are label values that are made once, so that their address stands for
// them: append to a copy of the list.
type labels struct {
	list []string
	// A series' with "false" and with "true" before them: did the response stream?
	streamed map[string]*labels
	// And its models alone, also with "ttft" and with "tpot" before them.
	models *labels
	timed  [2]*labels
	// found are the series that they have, by metric.Family.Number.
	found []atomic.Value
}

func newLabels(list []string) *labels {
	return &labels{list: list, found: make([]atomic.Value, len(metric.Kept))}
}

// interned are labels by what they are made of. The zero value is ready.
type interned[K comparable] struct {
	mu    sync.Mutex // guards the making of more
	known atomic.Pointer[map[K]*labels]
}

// find are the labels of a key that is known, or becomes so while there are
// fewer than most; else nil. made makes them, and the key to keep.
func (s *interned[K]) find(key K, most int, made func(K) (K, *labels)) *labels {
	known := s.all()
	if l := known[key]; l != nil || len(known) >= most {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.all() // others may have been first
	if l := known[key]; l != nil || len(known) >= most {
		return l
	}
	more := make(map[K]*labels, len(known)+1)
	maps.Copy(more, known)
	key, l := made(key)
	more[key] = l
	s.known.Store(&more)
	return l
}

func (s *interned[K]) all() map[K]*labels {
	if m := s.known.Load(); m != nil {
		return *m
	}
	return nil
}

// labelSet makes metric labels of what clients say. It is the only way from
// there to a label: they may say anything, and of everything they say, something
// else each time. The zero value is ready.
type labelSet struct{ interned[series] }

// of returns the labels model, target model, fairness id and priority. Beyond maxSeries the fairness id is left out,
// and beyond half as many again the models, too. Priorities are the objects', not the clients', and stay.
func (s *labelSet) of(key series) *labels {
	key.model, key.target, key.fairness = cut(key.model), cut(key.target), cut(key.fairness)
	if l := s.find(key, maxSeries); l != nil {
		return l
	}
	key.fairness = otherLabel
	if l := s.find(key, maxSeries*3/2); l != nil {
		return l
	}
	key.model, key.target = otherLabel, otherLabel
	return s.find(key, math.MaxInt)
}

func (s *labelSet) find(key series, most int) *labels { return s.interned.find(key, most, ofSeries) }

// timedOf are the times that a request has objectives for.
var timedOf = [...]string{"ttft", "tpot"}

func ofSeries(key series) (series, *labels) {
	// Neither a whole body nor a view into it stays with a name.
	key.model, key.target, key.fairness = strings.Clone(key.model), strings.Clone(key.target),
		strings.Clone(key.fairness)
	l := newLabels([]string{label(key.model), label(key.target), label(key.fairness), strconv.Itoa(key.priority)})
	l.streamed = map[string]*labels{}
	for _, streamed := range []string{"false", "true"} {
		l.streamed[streamed] = newLabels(append([]string{streamed}, l.list...))
	}
	l.models = newLabels(l.list[:2:2])
	for i, time := range timedOf {
		l.timed[i] = newLabels(append([]string{time}, l.models.list...))
	}
	return key, l
}

// request is of a request.
func (s *labelSet) request(r *picker.Request) *labels {
	fairness := cmp.Or(r.FairnessID, picker.DefaultFairnessID)
	return s.of(series{r.Model, r.TargetModel, fairness, r.Objective.Priority})
}

// flow is the label of a fairness id alone.
func (s *labelSet) flow(fairness string) string { return s.of(series{fairness: fairness}).list[2] }

// cut shortens what is too long for a label.
func cut(s string) string {
	if len(s) > maxLabelBytes {
		return s[:maxLabelBytes]
	}
	return s
}

// label returns text as a label: valid UTF-8, which the metrics library requires, without control characters, which
// would disturb readers of the page.
func label(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s) // a byte that is no UTF-8 comes as the same character
}
