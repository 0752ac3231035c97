package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// windtunnel modelserver takes the place of a vLLM with vLLM's own command line: clients see no difference, and Ctrl-C
// ends it.
func TestModelServerAlone(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	var stderr bytes.Buffer
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal = write, &stderr, false
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"modelserver", "--", "vllm", "serve", "my-model", "--host", "127.0.0.1", "--port", "0",
			"--time-to-first-token", "1ms"}, o)
		write.Close()
	}()
	lines := bufio.NewScanner(read)
	if !lines.Scan() {
		t.Fatalf("it did not become ready: exit code %d\n%s", <-code, &stderr)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	resp, err := http.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"my-model","max_tokens":3,"messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != 200 ||
		answer.Usage.Completion != 3 {
		t.Errorf("status %d, %d tokens, %v", resp.StatusCode, answer.Usage.Completion, err)
	}
	interrupt()
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Error(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d\n%s", got, &stderr)
	}
}
