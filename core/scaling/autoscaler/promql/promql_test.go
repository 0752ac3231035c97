package promql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

func labelled(pairs ...string) (out []metrics.Label) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, metrics.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// kept has two pods' figures, a counter that was reset, and a histogram.
func kept() *Store {
	s := &Store{Range: 300 * machine.Second}
	for i := range 5 {
		at := machine.Time(i) * 15 * machine.Second
		counter := float64(i) * 30
		if i == 4 {
			counter = 10 // a reset
		}
		list := []Sample{
			{"queue", labelled("pod", "a-decode", "model", "m"), float64(i)},
			{"queue", labelled("pod", "b-prefill", "model", "m"), 10},
			{"requests", labelled("pod", "a"), counter}, {"full", labelled("pod", "a"), float64(i) * 60},
		}
		for _, b := range []struct {
			le    string
			count float64
		}{{"0.1", 50}, {"0.5", 80}, {"1", 100}, {"+Inf", 100}} {
			list = append(list, Sample{"ttft_bucket", labelled("le", b.le), b.count * float64(i)})
		}
		s.Scraped(at, "x", list, true)
	}
	return s
}

func TestQueries(t *testing.T) {
	s := kept()
	for _, x := range []struct{ query, want string }{
		{`sum(queue)`, "14"},
		{`sum(queue{namespace="${NAMESPACE}",service="epp",model="m"})`, "14"},
		{`sum(queue{pod=~".*decode.*"})`, "4"},
		{`sum(queue{pod!~".*decode.*"}) / 4`, "2.5"},
		{`max(queue)`, "10"}, {`min(queue)`, "4"}, {`avg(queue)`, "7"}, {`count(queue)`, "2"},
		{`sum by (pod) (queue)`, "4{pod=a-decode} 10{pod=b-prefill}"},
		{`sum without (pod) (queue)`, "14{model=m}"},
		{`queue > 5`, "queue 10{model=m,pod=b-prefill}"},
		{`queue > bool 5`, "0{model=m,pod=a-decode} 1{model=m,pod=b-prefill}"},
		{`sum(nothing) or vector(0)`, "0"}, {`(sum(queue) / 7) or vector(0)`, "2"}, {`sum(nothing)`, ""},
		{`absent(nothing)`, "1"}, {`clamp_max(sum(queue), 3)`, "3"}, {`ceil(sum(queue) / 4)`, "4"},
		{`scalar(sum(queue)) + 1`, "15"},
		{`queue / on (pod) queue`, "1{pod=a-decode} 1{pod=b-prefill}"},
		// A comparison keeps the left side's series, and of its labels those by which it finds the right side's.
		{`queue > on (pod) (queue / 2)`, "4{pod=a-decode} 10{pod=b-prefill}"},
		{`queue > ignoring (model) (queue / 2)`, "queue 4{pod=a-decode} queue 10{pod=b-prefill}"},
		{`queue >= queue`, "queue 4{model=m,pod=a-decode} queue 10{model=m,pod=b-prefill}"},
		{`queue > bool on (pod) (queue / 2)`, "1{pod=a-decode} 1{pod=b-prefill}"},
		{`queue unless queue > 5`, "queue 4{model=m,pod=a-decode}"},
		{`max_over_time(queue{pod="a-decode"}[31s])`, "4{model=m,pod=a-decode}"},
		{`avg_over_time(queue{pod="a-decode"}[31s])`, "3{model=m,pod=a-decode}"},
		{`rate(full[1m])`, "4{pod=a}"},
		{`increase(requests[61s])`, "100{pod=a}"},
		{`histogram_quantile(0.5, sum by (le) (rate(ttft_bucket[1m])))`, "0.1"},
		{`histogram_quantile(0.9, sum by (le) (rate(ttft_bucket[1m])))`, "0.75"},
		{`-sum(queue) + 2 * 3 ^ 2`, "4"},
	} {
		q, _, err := Read(x.query)
		if err != nil {
			t.Errorf("%s: %v", x.query, err)
			continue
		}
		list, err := s.Eval(q, 60*machine.Second)
		if err != nil {
			t.Errorf("%s: %v", x.query, err)
			continue
		}
		var out []string
		for _, v := range list {
			var labels []string
			for _, l := range v.Labels {
				labels = append(labels, l.Name+"="+l.Value)
			}
			text := strings.TrimSpace(v.Name + " " + fmt.Sprint(v.Value))
			if len(labels) > 0 {
				text += "{" + strings.Join(labels, ",") + "}"
			}
			out = append(out, text)
		}
		if got := strings.Join(out, " "); got != x.want {
			t.Errorf("%s\n   is %s\n want %s", x.query, got, x.want)
		}
	}
}

// The error names what is not evaluated, and says where a text is no PromQL.
func TestRefusedQueries(t *testing.T) {
	for query, says := range map[string]string{
		`sum(`: "not PromQL", `topk(3, queue)`: "topk", `predict_linear(queue[5m], 60)`: "predict_linear()",
		`queue offset 5m`:                   "offset",
		`max_over_time(sum(queue)[5m:15s])`: "subquery", `queue * on (a) group_left queue`: "group_left",
		`{pod="a"}`:                        "without a metric's name",
		strings.Repeat("1+", 20_000) + "1": "expected up to",
	} {
		if _, _, err := Read(query); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, expected something with %q", query, err, says)
		}
	}
	_, dropped, err := Read(`sum(queue{namespace="x",model="${MODEL}",pod="a"})`)
	if got := strings.Join(dropped, " "); err != nil || got != `namespace="x" model="${MODEL}"` {
		t.Errorf("dropped %s, %v", got, err)
	}
}

// A series ends when its target omits it, when a scrape fails, and five minutes after its last sample; one that
// returns continues.
func TestStaleness(t *testing.T) {
	q, _, err := Read("sum(a)")
	if err != nil {
		t.Fatal(err)
	}
	var s Store
	sees := func(at machine.Time, want string) {
		t.Helper()
		list, err := s.Eval(q, at*machine.Second)
		if got := fmt.Sprint(list, err); got != want {
			t.Errorf("at %d s: %s, expected %s", at, got, want)
		}
	}
	const none = "[] <nil>"
	one := []Sample{{Name: "a", Value: 2}}
	s.Scraped(0, "x", one, true)
	sees(299, "[{ [] 2}] <nil>")
	sees(300, none)
	s.Scraped(15*machine.Second, "x", nil, true)
	sees(15, none)
	s.Scraped(30*machine.Second, "x", one, true)
	sees(30, "[{ [] 2}] <nil>")
	s.Scraped(45*machine.Second, "x", nil, false)
	sees(45, none)
	s.Scraped(2000*machine.Second, "y", nil, true)
	if len(s.series) != 0 {
		t.Errorf("it keeps %d series that nobody sees any more", len(s.series))
	}
}

func FuzzRead(f *testing.F) {
	for _, q := range []string{"sum(a)", `a{b=~"c.*"} or vector(0)`,
		"histogram_quantile(0.9, sum by (le) (rate(a_bucket[1m])))", "a / on (b) c", "-(1)"} {
		f.Add(q)
	}
	s := kept()
	f.Fuzz(func(_ *testing.T, text string) {
		if q, _, err := Read(text); err == nil {
			_, _ = s.Eval(q, 60*machine.Second) // whatever it comes to
		}
	})
}
