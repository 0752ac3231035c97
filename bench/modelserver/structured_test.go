package modelserver

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/internal/gate"
)

// form requires texts of 240 bytes: as many tokens as the other answers have.
const form = `,"response_format":{"type":"json_schema","json_schema":{"name":"person","strict":true,` +
	`"schema":{"type":"object",` +
	`"properties":{"id":{"type":"string","pattern":"^[0-9a-f]{12}$"},"kind":{"$ref":"#/$defs/kind"},` +
	`"notes":{"type":"string","minLength":188,"maxLength":188}},` +
	`"required":["id","kind","notes"],"additionalProperties":false,"$defs":{"kind":{"enum":["staff","guest"]}}}}}`

// BenchmarkStructured requests answers with a JSON schema and as many random words, and compares the cost per token.
func BenchmarkStructured(b *testing.B) {
	workers, each, rounds := 1000, 1, 3
	if testing.Short() {
		workers, rounds = 20, 1
	}
	raw := map[string]string{}
	for _, stream := range []bool{true, false} {
		for kind, more := range map[string]string{"words": "", "schema": form} {
			body := fmt.Sprintf(`{"model":"windtunnel","messages":[{"role":"user","content":"Say something about `+
				`wind."}],"max_tokens":%d,"stream":%v%s}`, tokens, stream, more)
			raw[fmt.Sprint(kind, stream)] = fmt.Sprintf(
				"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
					"%d\r\n\r\n%s", len(body), body)
		}
	}
	for _, stream := range []bool{true, false} {
		b.Run(map[bool]string{true: "stream", false: "whole"}[stream], func(b *testing.B) {
			ratios, cost := []float64(nil), map[string][]float64{}
			for b.Loop() {
				p := run(b, "ours")
				ask := func(kind string, n int) float64 {
					before := p.cpu(b)
					var wg sync.WaitGroup
					for range n {
						wg.Go(func() { wholes(b, p.addresses[0], raw[fmt.Sprint(kind, stream)], each) })
					}
					wg.Wait()
					return float64((p.cpu(b) - before).Nanoseconds()) / 1000 / float64(n*each*tokens)
				}
				ask("words", 20) // warms up
				for range rounds {
					words, schema := ask("words", workers), ask("schema", workers)
					cost["words"], cost["schema"] = append(cost["words"], words), append(cost["schema"], schema)
					ratios = append(ratios, schema/words)
				}
			}
			b.ReportMetric(middle(cost["schema"]), "µs-cpu/token")
			b.ReportMetric(middle(cost["words"]), "words-µs-cpu/token")
			gate.AtMost(b, middle(ratios), "cpu-ratio", 2)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// mebibyte asks for an answer of 1 MiB, by form.
var mebibyte = map[string]string{
	"regex":  `"structured_outputs":{"regex":"([a-z]{1024}){1024}"}`,
	"schema": `"structured_outputs":{"json":{"type":"string","minLength":1048576}}`,
}

// BenchmarkMebibyte requests structured outputs of 1 MiB. The server's CPU time for each is bounded, unless it refuses
// the form.
func BenchmarkMebibyte(b *testing.B) {
	for name, form := range mebibyte {
		b.Run(name, func(b *testing.B) {
			body := fmt.Sprintf(`{"model":"windtunnel","prompt":"a","max_tokens":300000,%s}`, form)
			var cost []float64
			size := 0
			for b.Loop() {
				p := run(b, "long")
				for range 3 {
					before := p.cpu(b)
					resp, err := http.Post("http://"+p.addresses[0]+"/v1/completions", "application/json",
						strings.NewReader(body))
					if err != nil {
						b.Fatal(err)
					}
					answer, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadRequest {
						b.Fatal(resp.StatusCode, err)
					}
					size = len(answer)
					cost = append(cost, (p.cpu(b) - before).Seconds())
				}
			}
			b.ReportMetric(float64(size), "bytes")
			gate.AtMost(b, middle(cost), "cpu-s", 0.2)
			b.ReportMetric(0, "ns/op")
		})
	}
}
