package epp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

const preciseBench = `
plugins:
- {type: precise-prefix-cache-producer, parameters: {kvEventsConfig: {discoverPods: false}}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: queue-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: queue-scorer}]}
`

// Decisions about prompts of 32,000 tokens, from the body that Envoy sends to the headers of the request, on all cores
// at once: 64 endpoints, 100 conversations. The time under the picker's lock limits them.
func BenchmarkLongPrompts(b *testing.B) {
	for name, config := range map[string]string{"approximate": "", "precise": preciseBench} {
		b.Run(name, func(b *testing.B) {
			o := &PickerOptions{Log: slog.New(slog.DiscardHandler)}
			if config != "" {
				o.Config, o.ConfigName = []byte(config), name
			}
			p, err := BuildPicker(o)
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			k, err := NewPicking(PickingOptions{Config: core.Config{Picker: p, ScrapeInterval: 1000 * machine.Second},
				Metrics: NewPickMetrics(prometheus.NewRegistry(), "p"),
				Now:     func() machine.Time { return machine.FromDuration(time.Since(began)) },
				Fetch:   func(string) ([]byte, error) { return nil, nil }})
			if err != nil {
				b.Fatal(err)
			}
			defer k.Close()
			var list []*picker.Endpoint
			for i := range 64 {
				list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%d", i), fmt.Sprintf("10.0.0.%d", i+1),
					"8000", nil))
			}
			k.SetEndpoints(list)
			bodies := make([][]byte, 100)
			for i := range bodies {
				text := strings.Repeat(fmt.Sprintf("This is what conversation %d is about, and it is long. ", i),
					128_000/55)
				bodies[i] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%s"}]}`, text)
			}
			var n atomic.Uint64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := n.Add(1)
					onePass(b, k, i, bodies[i%100])
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// onePass is a request's way through the picker.
func onePass(b testing.TB, k *Picking, number uint64, body []byte) {
	s := core.NewStream(k.m, k, number)
	var fx machine.Effects[stream.Effect]
	tell := func(m stream.Message) {
		s.Input(k.o.Now(), &m, &fx)
	}
	tell(stream.Message{Kind: stream.Headers,
		Head: header.Of(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", fmt.Sprint(number))})
	tell(stream.Message{Kind: stream.Body, Body: body, End: true})
	k.decide(context.Background, s.Request())
	fx.Reset()
	s.Decide(k.o.Now(), &fx)
	if s.Request().Err != nil {
		b.Error(s.Request().Err)
	}
	tell(stream.Message{Kind: stream.ResponseHeaders,
		Head: header.Of(":status", "200", "content-type", "application/json")})
	tell(stream.Message{Kind: stream.ResponseBody,
		Body: []byte(`{"usage":{"prompt_tokens":32000,"completion_tokens":3,"total_tokens":32003}}`), End: true})
	fx.Reset()
}
