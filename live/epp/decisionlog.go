package epp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// Four places report the reasons of a decision: the log, the record of the request (flow events), response headers on
// request, and the pages under /debug. All report the same decision.

// log writes the lines that document 003 (docs/documents.md) lists for operators. One line has all its keys.
func (k *Picking) log(d *picker.Decision) {
	if !k.o.Log.Enabled(context.Background(), slog.LevelInfo) || d.Request.Body == nil {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", d.Request.ID), slog.String("model", d.Request.TargetModel)}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", d.Err.Error()))
	} else {
		attrs = append(attrs, slog.String("selected_pod", d.Targets[0].Endpoint.Name),
			slog.String("selected_address", d.Destination()))
	}
	if p := d.Prefiller(); p != nil {
		attrs = append(attrs, slog.String("prefill_pod", p.Name))
	}
	attrs = append(attrs, slog.String("filter_result", filterResult(d)), slog.String("scorer_result", d.ScoreList()),
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
