package chaos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/scenario"
)

// incidentText returns an incident as YAML on one line, as in a scenario.
func incidentText(x *scenario.Incident) string {
	out := fmt.Sprintf("{at: %s, what: %s", x.At, x.What)
	add := func(field string, value any, given bool) {
		if given && plan.IncidentKind(x.What).Takes(field) {
			out += fmt.Sprintf(", %s: %v", field, value)
		}
	}
	add("server", x.Server, true)
	add("rank", x.Rank, true)
	add("replica", x.Replica, true)
	add("factor", x.Factor, x.Factor > 0)
	add("delay", x.Delay, x.Delay > 0)
	add("count", x.Count, x.Count > 0)
	add("group", strconv.Quote(x.Group), x.Group != "")
	add("grace", x.Grace, x.Grace > 0)
	add("for", x.For, x.For > 0)
	return out + "}"
}

// faultText returns a fault of requests as YAML on one line, as in a scenario.
func faultText(f *scenario.ServerFault) string {
	out := "{fault: " + strconv.Quote(f.Fault)
	if f.Rate > 0 {
		out += fmt.Sprintf(", rate: %g", float64(f.Rate))
	}
	for _, list := range []struct {
		field string
		of    []int
	}{{"requests", f.Requests}, {"servers", f.Servers}} {
		if len(list.of) > 0 {
			out += fmt.Sprintf(", %s: %s", list.field, strings.ReplaceAll(fmt.Sprint(list.of), " ", ", "))
		}
	}
	return out + "}"
}
