package modelserver

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What differs from one time to the next: when it was, and whether the goroutine that
// writes looks between the last token and the end, which come together.
var (
	createdAt = regexp.MustCompile(`"created":\d+`)
	endApart  = regexp.MustCompile(
		`"logprobs":null,"finish_reason":null,"token_ids":null\}\]\}\n\ndata: \{"id":"[^"]*",` +
			`"object":"chat.completion.chunk",,"model":"m","choices":\[\{"index":0,"delta":\{"content":""\},`)
)

// A request that is over leaves its memory to the next, while others are under way
// and clients leave in the middle: each answer stays what it is alone.
func TestAnswersInUsedMemory(t *testing.T) {
	o := fast()
	o.TokenTime = fixed(50_000)
	b := start(t, o)
	const kinds = 12
	body := func(i int) string {
		return fmt.Sprintf(`{"model":"m","stream":%v,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user",`+
			`"content":%q}]}`, i%2 == 0, 3+i, strings.Repeat("word ", 1+5*i))
	}
	ask := func(i int) string {
		_, answer := b.post("/v1/chat/completions", body(i), "X-Request-Id", fmt.Sprint("used-", i))
		return endApart.ReplaceAllString(createdAt.ReplaceAllString(answer, ""), "")
	}
	var alone [kinds]string
	for i := range alone {
		alone[i] = ask(i)
		if i%2 == 1 && !strings.Contains(alone[i], fmt.Sprintf(`"completion_tokens":%d`, 3+i)) {
			t.Fatal(alone[i])
		}
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 5 * kinds {
				i := (worker + round) % kinds
				if round%3 == 0 { // leaves before the end
					ctx, leave := context.WithCancel(t.Context())
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL()+"/v1/chat/completions",
						strings.NewReader(body(i-i%2)))
					if resp, err := b.Do(req); err == nil {
						leave()
						_ = resp.Body.Close()
					}
					leave()
				}
				if d := cmp.Diff(alone[i], ask(i)); d != "" {
					t.Errorf("alone (-) and among others (+): %s", d)
					return
				}
			}
		})
	}
	wg.Wait()
	b.until("nothing is left", b.idle)
}
