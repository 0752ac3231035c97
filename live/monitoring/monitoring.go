// Package monitoring starts the machine's own Prometheus and Grafana on a folder that windtunnel observe has filled,
// and stops them with their caller.
package monitoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/internal/child"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report/observe"
)

const (
	startTimeout = time.Minute // Grafana creates its database at the first start
	stopTimeout  = 10 * time.Second
)

// Program is a running Prometheus or Grafana.
type Program struct {
	*child.Process
	// Name is Prometheus or Grafana. URL is the address at which it answers.
	Name, URL string

	path string
}

// Prometheus starts the program at path with the folder dir, listening on 127.0.0.1:port (0 means any free port), and
// returns when it is ready. Ctx bounds only the start. Errors name its log.
func Prometheus(ctx context.Context, path, dir string, port int) (*Program, error) {
	address, err := free(port)
	if err != nil {
		return nil, fmt.Errorf("Prometheus: %w", err)
	}
	cmd := exec.Command(path, "--config.file="+filepath.Join(dir, observe.PrometheusFile),
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus-data"), "--web.listen-address="+address)
	return start(ctx, "Prometheus", cmd, dir, "http://"+address, "/-/ready")
}

// Grafana starts the program at path, whose own files are in home, in the same way. It needs no login, and only this
// machine can reach it.
func Grafana(ctx context.Context, path, home, dir string, port int) (*Program, error) {
	address, err := free(port)
	if err != nil {
		return nil, fmt.Errorf("Grafana: %w", err)
	}
	host, at, _ := net.SplitHostPort(address)
	var args []string
	if filepath.Base(path) == "grafana" { // since Grafana 10 the server is a subcommand
		args = append(args, "server")
	}
	cmd := exec.Command(path, append(args, "--homepath", home)...)
	data := filepath.Join(dir, "grafana-data")
	cmd.Env = append(os.Environ(), "GF_SERVER_HTTP_ADDR="+host, "GF_SERVER_HTTP_PORT="+at, "GF_PATHS_DATA="+data,
		"GF_PATHS_LOGS="+data, "GF_PATHS_PLUGINS="+filepath.Join(data, "plugins"),
		"GF_PATHS_PROVISIONING="+filepath.Join(dir, filepath.FromSlash(observe.Provisioning)),
		"GF_AUTH_ANONYMOUS_ENABLED=true", "GF_AUTH_ANONYMOUS_ORG_ROLE=Viewer",
		"GF_ANALYTICS_REPORTING_ENABLED=false", "GF_ANALYTICS_CHECK_FOR_UPDATES=false",
		"GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES=false", "GF_NEWS_NEWS_FEED_ENABLED=false")
	return start(ctx, "Grafana", cmd, dir, "http://"+address, "/api/health")
}

// GrafanaHome returns the folder of the files of the Grafana at path: above the program, or where packages install
// them. It returns "" if it finds none.
func GrafanaHome(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, home := range []string{filepath.Dir(filepath.Dir(path)), "/usr/share/grafana", "/opt/homebrew/share/grafana",
		"/usr/local/share/grafana"} {
		if _, err := os.Stat(filepath.Join(home, "conf", "defaults.ini")); err == nil {
			return home
		}
	}
	return ""
}

// free returns an address on which nothing listens.
func free(port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func start(ctx context.Context, name string, cmd *exec.Cmd, dir, url, ready string) (*Program, error) {
	cmd.Dir = dir
	process, err := child.Run(cmd, filepath.Join(dir, filepath.Base(cmd.Path)+".log"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Program{Process: process, Name: name, URL: url, path: cmd.Path}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !answers(ctx, url+ready) {
		if p.Ended() {
			return nil, p.Err()
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return nil, errors.Join(
				fmt.Errorf("%s (%s) does not become ready: %w; its log is %s", name, p.path, ctx.Err(), p.Log),
				p.Stop())
		}
	}
	return p, nil
}

func answers(ctx context.Context, url string) bool {
	_, err := serve.Fetch(ctx, http.DefaultClient, http.MethodGet, url, nil, 1<<16)
	return err == nil
}

// Err waits for the program's end and returns an error that names its log.
func (p *Program) Err() error {
	why := p.Wait()
	why = cmp.Or(why, errors.New("without an error"))
	return fmt.Errorf("%s (%s) ended: %w; its log is %s", p.Name, p.path, why, p.Log)
}

// Stop asks the program to end, and kills it if it does not.
func (p *Program) Stop() error {
	if p.Process.Stop(context.Background(), stopTimeout) {
		return fmt.Errorf("%s did not end within %v and was killed; its log is %s", p.Name, stopTimeout, p.Log)
	}
	return nil
}
