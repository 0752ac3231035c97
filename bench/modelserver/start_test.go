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

// BenchmarkStart runs `windtunnel modelserver` and measures the time from the start of the program to its first
// answer, its private memory then, and how much of the program's file is mapped. All processes of the program share
// mapped pages, and the machine reclaims them when memory is short. They grow with the program, not with the server.
func BenchmarkStart(b *testing.B) {
	exe := filepath.Join(b.TempDir(), "windtunnel")
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/windtunnel").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	var took, own, file []float64
	for b.Loop() {
		for range 10 {
			d, ownBytes, fileBytes := startOnce(b, exe)
			took, own, file = append(took, float64(d.Microseconds())/1000), append(own, float64(ownBytes)/1e6),
				append(file, float64(fileBytes)/1e6)
		}
	}
	gate.AtMost(b, middle(took), "ms-to-ready", 300)
	gate.AtMost(b, middle(own), "own-MB", 16)
	b.ReportMetric(middle(file), "file-MB")
	b.ReportMetric(0, "ns/op")
}

func startOnce(b *testing.B, exe string) (ready time.Duration, ownBytes, fileBytes int) {
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
	ready = time.Since(began)
	p := &process{pid: cmd.Process.Pid}
	fileBytes = p.statm(b, 2)
	return ready, p.rss(b) - fileBytes, fileBytes
}
