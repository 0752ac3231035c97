package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
)

func networks(t *rapid.T) Kind[link.Message, *link.Effects] {
	bandwidth := rapid.Int64Range(link.MinBandwidth, 4e7)
	links := make([]link.Link, rapid.IntRange(1, 4).Draw(t, "links"))
	for i := range links {
		links[i] = link.Link{Name: fmt.Sprint(i), BytesPerSecond: bandwidth.Draw(t, "bandwidth")}
	}
	id := func(t *rapid.T) link.ID { return link.ID(rapid.IntRange(1, 12).Draw(t, "id")) }
	return Kind[link.Message, *link.Effects]{
		Make: func() Instance[link.Message, *link.Effects] {
			n, err := link.New(links)
			if err != nil {
				panic(err)
			}
			return Instance[link.Message, *link.Effects]{Machine: n, Effects: new(link.Effects),
				Say: Plainly[link.Effect], State: func() (s string) {
					for i := range links {
						transfers, used := n.Load(link.LinkID(i))
						s += fmt.Sprintf("%s: %d transfers, %d, carried %d; ", links[i].Name, transfers, used,
							n.Carried(link.LinkID(i)))
					}
					return s
				}}
		},
		Message: func(t *rapid.T, _ machine.Time) link.Message {
			switch rapid.IntRange(0, 7).Draw(t, "message") {
			case 0:
				return link.Cancel{ID: id(t)}
			case 1:
				return link.Change{Link: link.LinkID(rapid.IntRange(0, len(links)).Draw(t, "link")),
					BytesPerSecond: rapid.SampledFrom([]int64{0, 1, link.MinBandwidth, 3e7}).Draw(t, "to")}
			}
			s := link.Start{ID: id(t), Bytes: rapid.SampledFrom([]int64{0, 1, 1e5, 1e6, -1}).Draw(t, "bytes"),
				Serial: uint64(rapid.IntRange(0, 2).Draw(t, "serial"))}
			if s.Bytes > 0 {
				s.UsableBytes = rapid.Int64Range(0, s.Bytes).Draw(t, "usable")
			}
			for range rapid.IntRange(1, 2).Draw(t, "legs") {
				leg := link.Leg{Delay: rapid.SampledFrom(
					[]machine.Time{0, machine.Millisecond, 10 * machine.Millisecond}).Draw(t, "delay")}
				for i := range links {
					if rapid.Bool().Draw(t, "crosses") {
						leg.Path = append(leg.Path, link.LinkID(i))
					}
				}
				if rapid.Bool().Draw(t, "capped") {
					leg.BytesPerSecond = bandwidth.Draw(t, "cap")
				}
				s.Legs = append(s.Legs, leg)
			}
			return s
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 100 * machine.Millisecond},
		Rest:  60 * machine.Second,
	}
}
