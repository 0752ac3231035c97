package program

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/tune"
	"github.com/windtunnel/windtunnel/virtual"
	"github.com/windtunnel/windtunnel/web"
)

// mostPoints bounds the candidates of a search on its page, and mostOpened the runs that are open beside it.
const mostPoints, mostOpened = 200, 8

// tunePage is the page of a search: the run of the best configuration, and a page for the run of each point that its
// user chooses.
type tunePage struct {
	o      *outside
	out    *tune.Tuned
	points []tune.Point
	file   string

	mu    sync.Mutex
	pages map[int]*shownPage // by point
}

// show shows the search until an interruption.
func (c *tuneCmd) show(o *outside, out *tune.Tuned) error {
	p := &tunePage{o: o, out: out, points: out.Points(), file: c.file(), pages: map[int]*shownPage{}}
	decided := p.points[len(out.Candidates):] // today's and the best
	most := min(len(out.Candidates), mostPoints)
	p.points = append(p.points[:most:most], decided...)
	found := &web.Search{Verdict: out.Verdict}
	for i := range out.Knobs {
		found.Knobs = append(found.Knobs, web.SearchKnob{Name: out.Knobs[i].Name, Range: out.Knobs[i].Range()})
	}
	for i, name := range out.Objectives {
		found.Objectives = append(found.Objectives, web.SearchObjective{Name: name, Higher: out.Higher(i)})
	}
	for i := range p.points {
		found.Points = append(found.Points, web.SearchPoint(p.points[i]))
	}
	page, play, err := p.open(o, &c.pageFlags, &decided[1+out.Knee], found)
	if err != nil {
		return err
	}
	defer page.stop()
	page.server.Acts(p.act)
	if err = play(); exit.Of(err) == exit.Failed {
		err = nil // a run that misses an expectation is worth a look, too
	}
	return err
}

// open starts the page of a point's run. play plays the run, and stays until an interruption.
func (p *tunePage) open(o *outside, flags *pageFlags, x *tune.Point, found *web.Search) (page *shownPage,
	play func() error, err error) {
	s, err := p.out.Prepared(x)
	if err != nil {
		return nil, nil, err
	}
	options := (&outputFlags{shownIn: shownIn{Output: "text"}}).options(o, s, nil)
	options.Out, options.Scenario = io.Discard, s.Name+", "+x.Of
	page, err = flags.start(&options, web.Meta{Mode: "sim", File: p.file, BBR: len(s.Pools) > 1,
		Pools: pagePools(s, search.Virtual(s)), Search: found})
	return page, func() error { return sim(o, s, options, virtual.Options{}, "", page) }, err
}

// act plays a point in virtual time, once, and returns the link of its page.
func (p *tunePage) act(_ context.Context, a web.Act) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := int(a.Number)
	if a.Name != "play" || i < 0 || i >= len(p.points) {
		return "", fmt.Errorf("found %s %v; expected play with the number of a point, from 0 to %d", a.Name, a.Number,
			len(p.points)-1)
	}
	if p.pages[i] == nil {
		if len(p.pages) == mostOpened {
			return "", fmt.Errorf("found %d open runs; to open others, end tune and start it again, with --results",
				mostOpened)
		}
		quiet := *p.o
		quiet.Stderr = io.Discard
		page, play, err := p.open(&quiet, &pageFlags{UI: true}, &p.points[i], nil)
		if err != nil {
			return "", err
		}
		p.pages[i] = page
		go play() //nolint:errcheck // its page shows what the run is
	}
	return p.pages[i].server.Link(), nil
}
