package observe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
	k8syaml "sigs.k8s.io/yaml"
)

// Prometheus' own parser accepts every query, and every rule and panel has a unique name.
func TestQueriesParse(t *testing.T) {
	queries := 0
	for name, expr := range Queries() {
		queries++
		if _, err := parser.ParseExpr(expr); err != nil {
			t.Errorf("%s: %v\n%s", name, err, expr)
		}
	}
	if queries < 150 {
		t.Errorf("only %d queries", queries)
	}
	for _, a := range Alerts() {
		if _, err := parser.ParseExpr(a.Expr); err != nil {
			t.Errorf("%s: %v\n%s", a.Alert, err, a.Expr)
		}
		if _, err := model.ParseDuration(a.For); err != nil {
			t.Errorf("%s: %v", a.Alert, err)
		}
	}
	for _, r := range Recordings() {
		if !model.LegacyValidation.IsValidMetricName(r.Record) {
			t.Errorf("%s is no name of a series", r.Record)
		}
	}
}

// Grafana accepts a dashboard: a current schema, unique ids and places, one variable for the data source of all
// queries.
func TestDashboards(t *testing.T) {
	made, err := Files(Options{Interval: 15 * time.Second, Prometheus: "http://127.0.0.1:9091", Dir: "/somewhere"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Dashboards {
		var got struct {
			UID           string
			SchemaVersion int
			Templating    struct{ List []struct{ Name, Type string } }
			Panels        []struct {
				ID          int
				Type, Title string
				GridPos     struct{ X, Y, W, H int }
				Datasource  struct{ UID string }
				Targets     []struct {
					Expr, RefID string
					Datasource  struct{ UID string }
				}
			}
		}
		if err := json.Unmarshal(made["grafana/dashboards/"+d.File+".json"], &got); err != nil {
			t.Fatal(d.File, err)
		}
		sources := 0
		for _, v := range got.Templating.List {
			if v.Name == "DS_PROMETHEUS" && v.Type == "datasource" {
				sources++
			}
		}
		if got.UID != d.File || got.SchemaVersion < 39 || sources != 1 {
			t.Errorf("%s: uid %s, schema %d, %d sources", d.File, got.UID, got.SchemaVersion, sources)
		}
		ids, places := map[int]bool{}, map[[2]int]string{}
		for _, p := range got.Panels {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if places[[2]int{x, y}] != "" || x >= 24 {
						t.Fatalf("%s: %q lies on %q", d.File, p.Title, places[[2]int{x, y}])
					}
					places[[2]int{x, y}] = p.Title
				}
			}
			if ids[p.ID] || p.Title == "" || p.Type != "row" &&
				(len(p.Targets) == 0 || p.Datasource.UID != "${DS_PROMETHEUS}") {
				t.Errorf("%s: panel %+v", d.File, p)
			}
			ids[p.ID] = true
			for _, q := range p.Targets {
				if q.Datasource.UID != "${DS_PROMETHEUS}" || q.RefID == "" {
					t.Errorf("%s, %s: %+v", d.File, p.Title, q)
				}
			}
		}
	}
	for name, text := range made {
		if strings.HasSuffix(name, ".yml") && k8syaml.Unmarshal(text, &struct{}{}) != nil ||
			strings.Contains(string(text), "INTERVAL") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// The cluster's configuration finds the pods that document 003 means, at its ports and
// under its labels, and no others.
func TestDocument003Relabels(t *testing.T) {
	text, err := files.ReadFile("files/kubernetes.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName        string            `yaml:"job_name"`
			RelabelConfigs []*relabel.Config `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	pod := func(pairs ...string) labels.Labels {
		return labels.FromStrings(
			append([]string{"__address__", "10.0.0.1:1", "__meta_kubernetes_pod_ip", "10.0.0.1",
				"__meta_kubernetes_pod_name", "p", "__meta_kubernetes_namespace", "n"}, pairs...)...)
	}
	for _, c := range []struct {
		job  string
		pod  labels.Labels
		want string
	}{
		{Sidecars, pod("__meta_kubernetes_pod_label_component", "routing-sidecar"),
			"10.0.0.1:8000 pod=p instance= namespace=n"},
		{Sidecars, pod(), ""},
		{Pickers, pod("__meta_kubernetes_pod_label_app", "endpoint-picker"),
			"10.0.0.1:9090 pod= instance= namespace=n"},
		{Pickers, pod("__meta_kubernetes_pod_label_app", "other"), ""},
		{Servers, pod("__meta_kubernetes_pod_label_serving_kserve_io_inferenceservice", "x"),
			"10.0.0.1:8001 pod=p instance=p namespace=n"},
		{Servers, pod(), ""}, // the document's configuration would keep it
		{KVManagers, pod("__meta_kubernetes_pod_label_app", "kv-cache-manager"),
			"10.0.0.1:8080 pod= instance= namespace=n"},
		{Envoys, pod("__meta_kubernetes_pod_container_port_name", "http-envoy-prom"),
			"10.0.0.1:1 pod=p instance= namespace=n"},
	} {
		got := ""
		for _, s := range config.ScrapeConfigs {
			if s.JobName != c.job {
				continue
			}
			for _, r := range s.RelabelConfigs {
				r.NameValidationScheme = model.LegacyValidation
			}
			b := labels.NewBuilder(c.pod)
			if relabel.ProcessBuilder(b, s.RelabelConfigs...) {
				out := b.Labels()
				got = out.Get("__address__") + " pod=" + out.Get("pod") + " instance=" + out.Get("instance") +
					" namespace=" + out.Get("namespace")
			}
		}
		if got != c.want {
			t.Errorf("%s: %s becomes %q, want %q", c.job, c.pod, got, c.want)
		}
	}
}

// The outputs of a run and of up become targets with the labels of the dashboards.
func TestReadTargets(t *testing.T) {
	for name, c := range map[string]struct{ text, want, err string }{
		"a run": {text: `{"envoyAdmin":"http://a:1","pickers":[{"name":"p-epp-0","pool":"p","metrics":"a:2"},{"name":"x","pool":"p"}],"kvManager":"http://a:7",
			"servers":[{"name":"p-h100-0","pool":"p","address":"a:3","sidecar":"a:4"},{"name":"p-prefill-0","pool":"p","address":"a:5","prefill":true}]}`,
			want: "llm-d-sidecar a:4 p-h100-0-decode default p\nllm-d-epp a:2 p-epp-0 default p\nvllm-workers a:3 " +
				"p-h100-0-decode default p\nvllm-workers a:5 p-prefill-0 default p\nenvoy a:1 envoy default " +
				"\nkv-cache-manager a:7 kv-cache-manager default \n"},
		"up": {text: `{"envoyAdmin":"http://a:1","pickers":[{"name":"e","pool":"n/p","metrics":"a:2"}],` +
			`"pods":[{"name":"d-0","namespace":"n","model":"m","sidecar":"a:4","ports":{"8000":"a:4","8001":"a:3"}},` +
			`{"name":"echo","namespace":"n","ports":{"80":"a:9"}}]}`,
			want: "llm-d-sidecar a:4 d-0 n \nllm-d-epp a:2 e n p\nvllm-workers a:3 d-0 n \nenvoy a:1 envoy default \n"},
		"no JSON":        {text: `x`, err: "expected the output of run --addresses-file"},
		"something else": {text: `{}`, err: "envoyAdmin is missing"},
		"no address":     {text: `{"envoyAdmin":"a"}`, err: `envoyAdmin: found "a"; expected an address`},
	} {
		t.Run(name, func(t *testing.T) {
			of, err := ReadTargets([]byte(c.text))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v; want %s", err, c.err)
				}
				return
			}
			got := ""
			for _, job := range Jobs() {
				for _, x := range of[job] {
					got += job + " " + x.Targets[0] + " " + x.Labels["pod"] + " " + x.Labels["namespace"] + " " +
						x.Labels["inference_pool"] + "\n"
				}
			}
			if err != nil || got != c.want {
				t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
}

func FuzzReadTargets(f *testing.F) {
	f.Add([]byte(`{"envoyAdmin":"a:1","pods":[{"model":"m","ports":{"1":"a"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if of, err := ReadTargets(text); err == nil && len(of[Envoys]) != 1 {
			t.Fatal(of)
		}
	})
}
