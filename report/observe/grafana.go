package observe

import (
	"bytes"
	"encoding/json"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// source is the data source of the dashboards, by the variable that each has.
var source = map[string]any{"type": "prometheus", "uid": "${DS_PROMETHEUS}"}

// Sizes of panels on Grafana's grid, 24 wide.
const (
	columns = 3
	width   = 24 / columns
	height  = 8
)

// JSON returns the dashboard in Grafana's format.
func (d *Dashboard) JSON() ([]byte, error) {
	id, y := 0, 0
	panels := []any{}
	next := func() int { id++; return id }
	for _, r := range d.Rows {
		if r.Title != "" {
			panels = append(panels, map[string]any{"id": next(), "type": "row", "title": r.Title, "collapsed": false,
				"panels": []any{}, "gridPos": grid(0, y, 24, 1)})
			y++
		}
		for i := range r.Panels {
			panels = append(panels, r.Panels[i].json(next(), i%columns*width, y+i/columns*height))
		}
		y += (len(r.Panels) + columns - 1) / columns * height
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // queries have < and >
	enc.SetIndent("", "  ")
	err := enc.Encode(map[string]any{
		"uid": d.File, "title": d.Title, "description": d.Description, "tags": []string{"llm-d"}, "schemaVersion": 39,
		"version": 1, "editable": true,
		"refresh": "5s", "time": map[string]string{"from": "now-15m", "to": "now"}, "timezone": "browser",
		"graphTooltip": 1, "annotations": map[string]any{"list": []any{}},
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "query": "prometheus",
				"refresh": 1},
			variable("namespace", "label_values(up, namespace)"),
			variable("model_name", "label_values(vllm:num_requests_running, model_name)"),
		}},
		"panels": panels,
	})
	return b.Bytes(), err
}

// variable returns a variable with a query's values, all of them selected.
func variable(name, query string) map[string]any {
	return map[string]any{"name": name, "type": "query", "datasource": source,
		"query": map[string]string{"query": query, "refId": name}, "definition": query,
		"refresh": 2, "includeAll": true, "allValue": ".*", "multi": true,
		"current": map[string]any{"text": "All", "value": "$__all"}}
}

func grid(x, y, w, h int) map[string]int { return map[string]int{"x": x, "y": y, "w": w, "h": h} }

func (p *Panel) json(id, x, y int) map[string]any {
	defaults := map[string]any{"unit": p.Unit}
	if p.Target != 0 {
		defaults["thresholds"] = map[string]any{"mode": "absolute",
			"steps": []any{map[string]any{"color": "green", "value": nil},
				map[string]any{"color": "red", "value": p.Target}}}
		defaults["custom"] = map[string]any{"thresholdsStyle": map[string]string{"mode": "line"}}
	}
	out := map[string]any{"id": id, "type": "timeseries", "title": p.Title, "datasource": source,
		"gridPos":     grid(x, y, width, height),
		"fieldConfig": map[string]any{"defaults": defaults, "overrides": []any{}},
		"options": map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"},
			"tooltip": map[string]string{"mode": "multi"}}}
	if p.Needs != "" {
		out["description"] = "Has data with " + p.Needs + "."
	}
	var targets []any
	for i, q := range p.Queries {
		t := map[string]any{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr,
			"legendFormat": q.Legend}
		if p.Heatmap {
			t["format"] = "heatmap"
		}
		targets = append(targets, t)
	}
	out["targets"] = targets
	if p.Heatmap {
		out["type"] = "heatmap"
		out["options"] = map[string]any{"calculate": false,
			"color": map[string]any{"mode": "scheme", "scheme": "Spectral"}, "yAxis": map[string]any{"unit": p.Unit}}
	}
	return out
}

// provider returns Grafana's provisioning of the dashboards.
func (o *Options) provider() ([]byte, error) {
	return yaml.Marshal(map[string]any{"apiVersion": 1,
		"providers": []any{map[string]any{"name": "llm-d", "folder": "llm-d", "type": "file", "allowUiUpdates": true,
			"options": map[string]any{"path": filepath.Join(o.Dir, filepath.FromSlash(dashboards))}}}})
}
