package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Client holds ServeGen's data of a client: the rate and the lengths of its requests, by windows of time.
type Client struct {
	Name string // for errors
	// Trace has a line for each window: its beginning in seconds, its requests per second, the variation of the times
	// between them, and the law that was fitted to these: Gamma, Weibull or none, its shape and its scale.
	Trace io.Reader
	// Dataset is a JSON object of windows by their beginnings, each with the frequencies of the lengths of prompts and
	// answers.
	Dataset io.Reader
}

// Limits of the clients' data.
const (
	maxClients = 4096
	maxWindows = 1 << 16
	maxDataset = 1 << 29 // bytes
	maxLengths = 1 << 20 // different ones in a window
)

// Generate makes the requests of all clients, from Options.From for Options.For seconds. Errors name the client.
func Generate(clients []Client, o Options) (*Trace, error) {
	if len(clients) == 0 || len(clients) > maxClients {
		return nil, fmt.Errorf("%d clients; expected 1 to %d", len(clients), maxClients)
	}
	end := math.Inf(1)
	if o.For > 0 {
		end = o.From + o.For
	}
	x := generator{o: &o, end: end}
	all := make([]sender, len(clients))
	expected := 0.0
	for i, c := range clients {
		err := x.rates(&all[i], c.Trace)
		if err == nil {
			err = x.lengths(&all[i], c.Dataset)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		for _, w := range all[i].windows {
			expected += float64((min(w.to, end) - max(w.from, o.From)) * w.rate)
		}
	}
	if expected == 0 {
		return nil, fmt.Errorf("no client sends a request from %g s on for %g s; expected a time with requests", o.From,
			o.For)
	}
	scale := 1.0
	if o.Rate > 0 {
		scale = o.Rate * x.span(all) / expected
	}
	for i := range all {
		all[i].number, all[i].now, all[i].speed = uint64(i), o.From, scale
		x.next(&all[i])
	}
	t := &Trace{Assumed: x.assumed(scale)}
	for len(t.Requests) < o.Most {
		s := &all[0]
		for i := range all {
			if all[i].at < s.at {
				s = &all[i]
			}
		}
		if math.IsInf(s.at, 1) {
			break
		}
		x.request(t, s)
		x.next(s)
	}
	if len(t.Requests) == 0 {
		return nil, fmt.Errorf("no request comes from %g s on for %g s, of %.3g that are expected; expected a longer "+
			"time, or a higher rate", o.From, o.For, expected*scale)
	}
	return t, nil
}

// sender is a client that sends.
type sender struct {
	windows []window
	sizes   []sizes // by their beginnings
	number  uint64  // of the client
	sent    uint64
	speed   float64 // factor of its rate
	now, at float64 // in seconds: the current time, and the next request
	window  int     // at now
}

// window is a stretch of a client's time.
type window struct {
	from, to, rate float64
	gaps           workload.Gaps
}

// sizes are the lengths of prompts and answers from a time on.
type sizes struct {
	from   float64
	input  []often // by part of a prompt
	output often
}

// parts are the parts of a prompt: its tokens, or for multimodal clients the tokens of its text and of other media.
var parts = []string{"input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens"}

// often is the cumulative frequency of values, up to 1.
type often struct {
	values []int
	upTo   []float64
}

type generator struct {
	o       *Options
	end     float64
	lawless bool // some windows have no law
	seen    bool // some prompts have more than text
}

func (x *generator) assumed(scale float64) []string {
	out := []string{"it is the summary of a trace: the scenario's seed draws requests from it, each client's gaps by " +
		"the law of its window, at a rate that holds on average",
		"lengths of prompts and of their answers are drawn independently",
		allDifferent}
	if x.lawless {
		out = append(out, "windows without a law are Poisson")
	}
	if x.seen {
		out = append(out, "other media in a prompt are text of as many tokens, and the lengths of its parts are drawn "+
			"independently")
	}
	if scale != 1 {
		out = append(out, fmt.Sprintf("all clients send %.4g times as often as they did", scale))
	}
	return out
}

// span returns the seconds in which clients send.
func (x *generator) span(all []sender) float64 {
	last := x.o.From
	for i := range all {
		if n := len(all[i].windows); n > 0 {
			last = max(last, all[i].windows[n-1].to)
		}
	}
	return min(x.end, last) - x.o.From
}

// rates reads a client's windows, and keeps those with requests.
func (x *generator) rates(s *sender, from io.Reader) error {
	text, err := limited(from, maxWindows*256)
	if err != nil {
		return err
	}
	var all []window
	line := 0
	for row := range strings.Lines(text) {
		line++
		if row = strings.TrimSpace(row); row == "" {
			continue
		}
		w, err := x.row(row)
		if n := len(all); err == nil && n > 0 && w.from <= all[n-1].from {
			err = fmt.Errorf("a window begins at %g s, and the one before at %g s; expected them in their order",
				w.from, all[n-1].from)
		}
		if err == nil && len(all) == maxWindows {
			err = fmt.Errorf("more than %d windows; expected fewer", maxWindows)
		}
		if err != nil {
			return fmt.Errorf("line %d of its trace: %w", line, err)
		}
		all = append(all, w)
	}
	for i := range all {
		w := &all[i]
		switch {
		case i+1 < len(all):
			w.to = all[i+1].from
		case i > 0:
			w.to = w.from + (w.from - all[i-1].from)
		default:
			w.to = w.from + usualWindow
		}
		if w.rate > 0 && w.to > x.o.From && w.from < x.end {
			s.windows = append(s.windows, *w)
		}
	}
	return nil
}

// usualWindow is the length of a window in seconds, if the data has only one.
const usualWindow = 600

// row reads a line of a trace.
func (x *generator) row(text string) (w window, err error) {
	fields := strings.Split(text, ",")
	number := func(i int, what string, least, most float64) (v float64) {
		if i < len(fields) {
			var bad error
			if v, bad = strconv.ParseFloat(strings.TrimSpace(fields[i]), 64); bad == nil && v >= least && v <= most {
				return v
			}
		}
		if err == nil {
			err = fmt.Errorf("found %.80q; expected %s from %g to %g as field %d of 6", text, what, least, most, i+1)
		}
		return 0
	}
	w.from, w.rate = number(0, "a window's beginning in seconds", 0, 1e9), number(1, "requests per second", 0, 1e6)
	if err != nil || w.rate == 0 {
		return w, err
	}
	law := ""
	if len(fields) > 3 {
		law = strings.TrimSpace(fields[3])
	}
	process := map[string]workload.Process{"Gamma": workload.Gamma, "Weibull": workload.Weibull}
	switch p, known := process[law]; {
	case known:
		w.gaps = workload.NewGaps(p, number(4, "the shape of a law", 1e-3, 1e6))
	case law == "":
		w.gaps, x.lawless = workload.NewGaps(workload.Poisson, 1), true
	default:
		err = fmt.Errorf("found the law %.40q; expected Gamma, Weibull or none", law)
	}
	return w, err
}

// lengths reads a client's lengths, of the windows before the end.
func (x *generator) lengths(s *sender, from io.Reader) error {
	in := json.NewDecoder(io.LimitReader(from, maxDataset))
	if open, err := in.Token(); err != nil {
		return fmt.Errorf("its dataset: %w; expected a JSON object of windows by their beginnings", err)
	} else if open != json.Delim('{') {
		return fmt.Errorf("its dataset begins with %v; expected a JSON object of windows by their beginnings", open)
	}
	for n := 0; in.More(); n++ {
		key, err := in.Token()
		if err != nil {
			return fmt.Errorf("its dataset: %w", err)
		}
		at, bad := strconv.ParseFloat(fmt.Sprint(key), 64)
		if bad != nil || !(at >= 0 && at <= 1e9) || n == maxWindows {
			return fmt.Errorf("its dataset has the window %.40q; expected at most %d, by the seconds at which they "+
				"begin", fmt.Sprint(key), maxWindows)
		}
		var texts map[string]string
		if err := in.Decode(&texts); err != nil {
			return fmt.Errorf("window %v of its dataset: %w; expected input_tokens and output_tokens", key, err)
		}
		if at >= x.end {
			continue
		}
		z := sizes{from: at}
		for i, name := range append(parts, "output_tokens") {
			o, err := occurrences(texts[name])
			switch {
			case err != nil:
				return fmt.Errorf("window %v of its dataset: %s: %w", key, name, err)
			case len(o.values) == 0:
			case i == len(parts):
				z.output = o
			default:
				z.input, x.seen = append(z.input, o), x.seen || i > 1
			}
		}
		if len(z.input) > 0 && len(z.output.values) > 0 {
			s.sizes = append(s.sizes, z)
		}
	}
	machine.SortStableFunc(s.sizes, func(a, b sizes) int { return cmp.Compare(a.from, b.from) })
	if len(s.sizes) == 0 && len(s.windows) > 0 {
		return errors.New("its dataset has no lengths; expected some for the time in which it sends")
	}
	return nil
}

// occurrences reads how often values occur, such as "{224: 0.4, 300: 0.6}".
func occurrences(text string) (o often, err error) {
	inside, ok1 := strings.CutPrefix(strings.TrimSpace(text), "{")
	inside, ok2 := strings.CutSuffix(inside, "}")
	if text == "" || ok1 && ok2 && strings.TrimSpace(inside) == "" {
		return o, nil // no request
	}
	wrong := func(found string) error {
		return fmt.Errorf("found %.80q; expected how often each length occurred, such as {224: 0.4, 300: 0.6}", found)
	}
	if !ok1 || !ok2 || strings.Count(inside, ",") > maxLengths {
		return o, wrong(text)
	}
	sum := 0.0
	for pair := range strings.SplitSeq(inside, ",") {
		value, share, _ := strings.Cut(pair, ":")
		v, err1 := strconv.ParseFloat(strings.Trim(strings.TrimSpace(value), `"'`), 64)
		p, err2 := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err1 != nil || err2 != nil || !(v >= 0 && v <= maxTokens) || !(p >= 0 && p <= 1e12) {
			return o, wrong(pair)
		}
		sum += p
		o.values, o.upTo = append(o.values, int(v)), append(o.upTo, sum)
	}
	if sum <= 0 {
		return o, wrong(text)
	}
	for i := range o.upTo {
		o.upTo[i] /= sum
	}
	return o, nil
}

func (o *often) draw(d *machine.Draw) int {
	u := d.Float64()
	i := sort.Search(len(o.upTo), func(i int) bool { return o.upTo[i] > u })
	return o.values[min(i, len(o.values)-1)]
}

// next computes the time of a client's next request.
func (x *generator) next(s *sender) {
	s.sent++
	d := machine.NewDraw(x.o.Seed, "client", "servegen arrival", s.number<<40|s.sent)
	left := math.NaN() // the rest of the gap, in expected arrivals
	for ; s.window < len(s.windows); s.window++ {
		w := &s.windows[s.window]
		if math.IsNaN(left) {
			left = w.gaps.Draw(&d)
		}
		s.now = max(s.now, w.from)
		rate := float64(w.rate * s.speed)
		if s.at = s.now + left/rate; s.at < min(w.to, x.end) {
			s.now = s.at
			return
		}
		left -= float64((w.to - s.now) * rate)
		left, s.now = max(left, 0), w.to
	}
	s.at = math.Inf(1)
}

// request adds a client's next request.
func (x *generator) request(t *Trace, s *sender) {
	i := sort.Search(len(s.sizes), func(i int) bool { return s.sizes[i].from > s.at })
	z := &s.sizes[max(0, i-1)]
	d := machine.NewDraw(x.o.Seed, "client", "servegen lengths", s.number<<40|s.sent)
	r := row{at: (s.at - x.o.From) / x.o.Speedup}
	for i := range z.input {
		r.input += z.input[i].draw(&d)
	}
	r.input, r.output = max(1, r.input), max(1, z.output.draw(&d))
	t.Requests = append(t.Requests,
		r.recorded(x.o, machine.Time(r.at*1e9), []workload.RecordedPrompt{r.prompt(len(t.Requests))}))
}

// limited reads a text of at most most bytes.
func limited(from io.Reader, most int64) (string, error) {
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("more than %d bytes; expected fewer", most)
	}
	return string(text), err
}
