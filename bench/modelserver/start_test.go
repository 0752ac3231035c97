package modelserver

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/gate"
)

// BenchmarkStart runs `windtunnel modelserver` as a person does and waits until
// it answers: how long that takes from the moment the program is started, and
// how much memory it has then.
func BenchmarkStart(b *testing.B) {
	exe := filepath.Join(b.TempDir(), "windtunnel")
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/windtunnel").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	var took, memory []float64
	for b.Loop() {
		for range 10 {
			d, bytes := startOnce(b, exe)
			took, memory = append(took, float64(d.Microseconds())/1000), append(memory, float64(bytes)/1e6)
		}
	}
	gate.AtMost(b, middle(took), "ms-to-ready", 300)
	gate.AtMost(b, middle(memory), "MB", 40)
	b.ReportMetric(0, "ns/op")
}

func startOnce(b *testing.B, exe string) (time.Duration, int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(exe, "modelserver", "--", "--host", "127.0.0.1", "--port", port)
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := began.Add(20 * time.Second); ; {
		resp, err := client.Get("http://" + addr + "/health")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			b.Fatal("not ready after 20 s: ", err)
		}
	}
	ready := time.Since(began)
	return ready, (&process{pid: cmd.Process.Pid}).rss(b)
}
