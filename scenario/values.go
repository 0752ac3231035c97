package scenario

import "github.com/windtunnel/windtunnel/core/modelserver/latency/dist"

// mustCount and mustSpan are only ever called with constants.
func mustCount(text string) dist.Dist { return must(dist.ParseCount(text)) }
func mustSpan(text string) dist.Dist  { return must(dist.Parse(text)) }

func must(d dist.Dist, err error) dist.Dist {
	if err != nil {
		panic(err)
	}
	return d
}
