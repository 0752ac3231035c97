package modelserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
)

func TestParseFault(t *testing.T) {
	for in, want := range map[string]lifecycle.Fault{
		"":              {},
		"refuse":        {lifecycle.AtConnect: {Do: lifecycle.Close}},
		"stall":         {lifecycle.AtTokens: {Do: lifecycle.Stall}},
		"reset-after=5": {lifecycle.AtTokens: {Do: lifecycle.Reset, N: 5}},
		"stall=5; lose-kv": {lifecycle.AtTokens: {Do: lifecycle.Stall, N: 5},
			lifecycle.AtTransfer: {Do: lifecycle.Lose}},
		"status=503;delay=200ms": {lifecycle.AtAnswer: {Do: lifecycle.Answer, N: 503},
			lifecycle.AtBody: {Do: lifecycle.Wait, For: 200 * time.Millisecond}},
		"reset-after=1;stall": {lifecycle.AtTokens: {Do: lifecycle.Stall}},
	} {
		got, err := modelserver.ParseFault(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", in, d)
		}
	}
	for _, in := range []string{"boom", "status=abc", "status=99", "stall=-1", "delay=1", "reset-after", "refuse=3",
		";"} {
		if _, err := modelserver.ParseFault(in); err == nil {
			t.Errorf("%q passed", in)
		}
	}
}

func FuzzParseFault(f *testing.F) {
	f.Add("status=503;stall=1")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := modelserver.ParseFault(s)
		if err != nil {
			return
		}
		for at, strike := range got {
			if status := lifecycle.Moment(at) == lifecycle.AtAnswer && strike.Do == lifecycle.Answer; strike.N < 0 ||
				strike.For < 0 || status && (strike.N < 100 || strike.N > 599) {
				t.Errorf("%q gives %+v", s, got)
			}
		}
	})
}

// A server whose options spoil some requests still hears the admin API about
// the others.
func TestFaultsBesideInjection(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Faults.Of = func(request string) lifecycle.Fault {
		if request == "chosen" {
			return lifecycle.Fault{lifecycle.AtAnswer: {Do: lifecycle.Answer, N: 429}}
		}
		return lifecycle.Fault{}
	}
	b := start(t, o)
	for _, injected := range []bool{false, true} {
		want := http.StatusOK
		if injected {
			b.post("/admin/config", `{"failure-injection-rate": 100, "fault": "status=500"}`)
			want = http.StatusInternalServerError
		}
		if resp, body := b.post("/v1/chat/completions", chatBody+"}", "X-Request-Id",
			"chosen"); resp.StatusCode != 429 {
			t.Errorf("the chosen one: %d %s", resp.StatusCode, body)
		}
		if resp, body := b.post("/v1/chat/completions", chatBody+"}", "X-Request-Id",
			"other"); resp.StatusCode != want {
			t.Errorf("another: got %d %s, want %d", resp.StatusCode, body, want)
		}
	}
}

// A request may take the whole engine with it, or a rank of its group.
func TestEngineFaults(t *testing.T) {
	t.Parallel()
	o := batched()
	o.TensorParallel = 2
	for _, fault := range []string{"crash", "fail-rank=1", "delay=1ms; fail-rank=0"} {
		b := start(t, o)
		for _, bad := range []string{"fail-rank=2", "fail-rank=x", "fail-rank"} {
			if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`, modelserver.FaultHeader,
				bad); resp.StatusCode != 400 {
				t.Errorf("%s: %d %s", bad, resp.StatusCode, body)
			}
		}
		if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`, modelserver.FaultHeader,
			fault); resp.StatusCode != 503 {
			t.Errorf("%s: %d %s", fault, resp.StatusCode, body)
		}
		if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`); resp.StatusCode != 503 {
			t.Errorf("after %s: %d %s", fault, resp.StatusCode, body)
		}
		if status, _ := b.text("GET", "/health", ""); status != 503 {
			t.Errorf("after %s: /health is %d", fault, status)
		}
		if resp, _ := b.post("/admin/restart", ""); resp.StatusCode != 200 {
			t.Error(resp.StatusCode)
		}
		if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`); resp.StatusCode != 200 {
			t.Errorf("after %s and a restart: %d %s", fault, resp.StatusCode, body)
		}
	}
}

// Each injected failure has llm-d-inference-sim's status, type, field and words.
func TestFailureWords(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	for kind, want := range map[string]string{
		"rate_limit": `{"message":"Rate limit reached for m in organization org-xxx on requests per min (RPM): Limit 3, ` +
			`Used 3, Requested 1.","type":"RateLimitError","param":null,"code":429}`,
		"invalid_api_key": `{"message":"Incorrect API key provided.","type":"AuthenticationError","param":null,` +
			`"code":401}`,
		"context_length": `{"message":"This model's maximum context length is 4096 tokens. However, your messages ` +
			`resulted in 4500 tokens.","type":"BadRequestError","param":"messages","code":400}`,
		"server_error": `{"message":"The server is overloaded or not ready yet.","type":"InternalServerError",` +
			`"param":null,"code":503}`,
		"invalid_request": `{"message":"Invalid request: missing required parameter 'model'.","type":"BadRequestError",` +
			`"param":"model","code":400}`,
		"model_not_found": `{"message":"The model 'm-nonexistent' does not exist","type":"NotFoundError",` +
			`"param":"model","code":404}`,
	} {
		if err := b.Inject(Injection{Percent: 100, Types: []string{kind}}); err != nil {
			t.Fatal(err)
		}
		resp, body := b.post("/v1/chat/completions", chatBody+"}")
		if body != `{"error":`+want+"}" || !strings.HasSuffix(want, fmt.Sprintf(`"code":%d}`, resp.StatusCode)) {
			t.Errorf("%s: %d %s, expected %s", kind, resp.StatusCode, body, want)
		}
	}
}
