package monitoring

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/fakebin"
)

// script writes a program that stands in for a server: it prints its arguments, and answers as a server if it is
// asked to.
func script(t *testing.T, name, text string) string {
	t.Helper()
	return fakebin.Write(t, filepath.Join(t.TempDir(), "bin", name), "#!/bin/sh\n"+text)
}

// Grafana starts with its folder, with access for readers and not from outside. A Grafana that ends results in an
// error.
func TestGrafanaOptions(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"grafana": "server", "grafana-server": "--homepath"} {
		dir := t.TempDir()
		path := script(t, name, `echo "args $*"; env | grep ^GF_; exit 1`)
		_, err := Grafana(t.Context(), path, "/home", dir, 0)
		if err == nil || !strings.Contains(err.Error(),
			"ended: exit status 1; its log is "+filepath.Join(dir, name+".log")) {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"args " + first, "GF_SERVER_HTTP_ADDR=127.0.0.1\n",
			"GF_PATHS_PROVISIONING=" + filepath.Join(dir, "grafana", "provisioning"),
			"GF_AUTH_ANONYMOUS_ORG_ROLE=Viewer", "GF_ANALYTICS_REPORTING_ENABLED=false"} {
			if !strings.Contains(string(log), want) {
				t.Errorf("no %q in\n%s", want, log)
			}
		}
	}
}

// GrafanaHome finds Grafana's own files above its program.
func TestGrafanaHome(t *testing.T) {
	t.Parallel()
	path := script(t, "grafana", "")
	home, err := filepath.EvalSymlinks(filepath.Dir(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(home, "conf"), 0o755),
		os.WriteFile(filepath.Join(home, "conf", "defaults.ini"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := GrafanaHome(path); got != home {
		t.Errorf("found %q; want %q", got, home)
	}
}

// A port in use is reported before a program is started.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	if _, err := free(-1); err == nil {
		t.Error("-1 is a port")
	}
	path := script(t, "prometheus", "exit 0")
	if _, err := Prometheus(t.Context(), path, filepath.Join(t.TempDir(), "absent"), 0); err == nil {
		t.Error("a folder that is not there is taken")
	}
}
