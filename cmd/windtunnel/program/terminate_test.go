package program

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// A model server obeys SIGTERM while clients' chat templates would keep it busy for minutes, because the output of a
// template is bounded.
func TestModelServerEndsWhileItIsBusy(t *testing.T) {
	t.Parallel()
	template := filepath.Join(t.TempDir(), "bomb.jinja")
	if err := os.WriteFile(template,
		[]byte("{% set x = 'a' * 2000000 %}{% for i in range(99999) %}{% for j in range(50) %}"+
			"{% if x ~ x %}{% endif %}{% endfor %}{% endfor %}"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("windtunnel", "modelserver", "--", "vllm", "serve", "m", "--host", "127.0.0.1", "--port",
		"0",
		"--chat-template", template)
	var stderr bytes.Buffer
	server.Stderr = &stderr
	stdout, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(5*time.Minute, func() { _ = server.Process.Kill() })
	defer end.Stop()
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	url := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	var answered atomic.Bool
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for { // until the server is gone
				resp, err := http.Post(url+"/v1/chat/completions", "application/json",
					strings.NewReader(`{"max_tokens":5,"messages":[{"role":"user","content":"a"}]}`))
				if err != nil {
					return
				}
				answer, _ := io.ReadAll(resp.Body) // it may be cut
				resp.Body.Close()
				answered.Store(true)
				if resp.StatusCode == http.StatusOK {
					t.Errorf("the template is no bomb: %s", answer)
					return
				}
			}
		})
	}
	eventually.Is(t, "a request at work, or done", func() bool {
		resp, err := http.Get(url + "/load")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		load, err := io.ReadAll(resp.Body)
		return err == nil && string(load) != `{"server_load":0}` || answered.Load()
	})
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("it ended with %v, expected exit code 0 within 5 minutes\n%s", err, &stderr)
	}
	clients.Wait()
}
