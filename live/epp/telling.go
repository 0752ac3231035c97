package epp

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// Why a request went where it went is told in four places: the log, the
// record of the request (flow events), response headers on request, and the
// pages under /debug. All tell the same decision.

// shownRows is how many endpoints of a profile a record or a header shows.
const shownRows = picker.RecordedEndpoints

// log writes the lines that document 003 tells people to look for. One line
// has all its keys.
func (k *Picking) log(d *picker.Decision) {
	if !k.o.Log.Enabled(context.Background(), slog.LevelInfo) || d.Request.Body == nil {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", d.Request.ID), slog.String("model", d.Request.TargetModel)}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", d.Err.Error()))
	} else {
		attrs = append(attrs, slog.String("selected_pod", d.Targets[0].Endpoint.Name), slog.String("selected_address", d.Destination()))
	}
	if p := prefillOf(d); p != nil {
		attrs = append(attrs, slog.String("prefill_pod", p.Name))
	}
	attrs = append(attrs, slog.String("filter_result", filterResult(d)), slog.String("scorer_result", scoreList(d.PrimaryProfile(), d.View)),
		slog.Duration("scheduling_duration", d.Took.Duration()))
	if d.Admission != "" {
		attrs = append(attrs, slog.String("admission", d.Admission))
	}
	k.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "scheduling decision", attrs...)
}

// filterResult counts endpoints through the profiles: "decode 4->3".
func filterResult(d *picker.Decision) string {
	var b strings.Builder
	for i := range d.Profiles {
		p := &d.Profiles[i]
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d->%d", p.Name, len(d.Candidates), len(p.Left))
		for _, r := range p.Removed {
			fmt.Fprintf(&b, " (%s -%d)", r.By.Name(), len(r.Removed))
		}
	}
	return b.String()
}

// scoreList is every endpoint's total: "pod-0=0.75,pod-1=2.4".
func scoreList(r *picker.ProfileResult, v *picker.View) string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	for j, i := range r.Left {
		if j >= len(r.Totals) {
			break
		}
		if j == shownRows {
			fmt.Fprintf(&b, ",and %d more", len(r.Left)-j)
			break
		}
		if j > 0 {
			b.WriteByte(',')
		}
		b.WriteString(v.States[i].Name + "=" + strconv.FormatFloat(r.Totals[j], 'g', 6, 64))
	}
	return b.String()
}

// prefillOf is the endpoint that prefills for another one, nil when none does.
func prefillOf(d *picker.Decision) *picker.Endpoint {
	r := d.Profile("prefill")
	if !r.Ok() || r == d.PrimaryProfile() {
		return nil
	}
	return d.View.States[r.Picked[0]].Endpoint
}

// told are the response headers that say why: the selected pod where the
// documents' headers are on, and all when the request asked for them.
func (k *Picking) told(d *picker.Decision) header.List {
	if d == nil || d.Err != nil || len(d.Targets) == 0 {
		return nil
	}
	var out header.List
	add := func(name, value string) { out = append(out, header.Header{Name: name, Value: value}) }
	ask := d.Request.Headers.Get(picker.HeaderExplain)
	asked := ask != "" && ask != "false" && ask != "0"
	if asked || k.o.DocumentHeaders {
		add(picker.HeaderSelectedPod, d.Targets[0].Endpoint.Name)
	}
	if !asked {
		return out
	}
	add(picker.HeaderDecodePod, d.Targets[0].Endpoint.Name)
	if p := prefillOf(d); p != nil {
		add(picker.HeaderPrefillPod, p.Name)
	}
	if r := d.PrimaryProfile(); r.Ok() {
		for _, pl := range k.p.Plugins() {
			if x, ok := pl.(prefixFigures); ok {
				matched, _, block := x.MatchOf(d, &d.View.States[r.Picked[0]])
				add(picker.HeaderCacheHit, strconv.FormatBool(matched > 0))
				add(picker.HeaderCachePrefix, strconv.Itoa(matched*block))
				break
			}
		}
		add(picker.HeaderScores, scoreList(r, d.View))
	}
	var filters, scorers machine.Time
	for _, s := range d.Spans {
		switch s.Point {
		case "Filter":
			filters += s.Took
		case "Scorer":
			scorers += s.Took
		}
	}
	add(picker.HeaderSchedulingTime, milliseconds(d.Took))
	add(picker.HeaderFilterTime, milliseconds(filters))
	add(picker.HeaderScorerTime, milliseconds(scorers))
	return out
}

func milliseconds(t machine.Time) string { return strconv.FormatFloat(t.Seconds()*1e3, 'f', 3, 64) }
