package jobs

import (
	"bytes"
	"context"
	"crypto/tls"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
	"github.com/windtunnel/windtunnel/kubernetes/testagent"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
)

// cluster is a test's namespace, with the programs and an agent.
type cluster struct {
	*testcluster.Cluster
	bin       string
	namespace string
	agent     *testagent.Agent
}

// in creates a namespace whose pods run one program as the image.
func (c *cluster) in(t *testing.T, namespace, program string, atOnce int) *cluster {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Client.Do(t.Context(), http.MethodPost, "/api/v1/namespaces", ns, nil); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the namespace's service account exists", func() bool {
		account := apiclient.At("serviceaccounts", namespace, "default")
		return c.Client.Do(t.Context(), http.MethodGet, account, nil, nil) == nil
	})
	x := *c
	x.namespace = namespace
	x.agent = &testagent.Agent{Client: c.Client, Namespace: namespace, AtOnce: atOnce,
		Images: map[string]string{"windtunnel:test": program}}
	x.agent.Start(t)
	return &x
}

// play runs a command line of windtunnel, which starts windtunnel-k8s beside it.
func (c *cluster) play(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "windtunnel"), strings.Fields(line)...)
	if c.namespace != "" {
		cmd.Args = append(cmd.Args, "--on", "kubernetes", "--image", "windtunnel:test", "--namespace", c.namespace,
			"--kubeconfig", c.Kubeconfig)
	}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	_ = cmd.Run() // the code says it
	return out.String(), text.String(), cmd.ProcessState.ExitCode()
}

// On a cluster, sweep and capacity print what they print on one machine, to the byte, and leave nothing behind. An index
// whose pod is killed, or whose program fails, is retried. After a failure of an index, the command prints the others'
// results and the end of the failed log, and the same command continues.
func TestJobs(t *testing.T) {
	c := &cluster{Cluster: testcluster.Start(t), bin: testcluster.Programs(t)}
	inScenario(t, "sub")
	local := &cluster{bin: c.bin}
	program := filepath.Join(c.bin, "windtunnel")
	const sweep = "sweep ../mine.yaml --vary workload.rate=5,10,20,30 --vary workload.requests=50,100"
	const capacity = "capacity ../mine.yaml --objective ttft.mean=1s --duration 1s --precision 50 -r 3"

	empty := func(t *testing.T, c *cluster) {
		for _, kind := range []string{"jobs", "configmaps", "persistentvolumeclaims", "pods"} {
			eventually.Is(t, "nothing is left of "+kind, func() bool {
				var list metav1.PartialObjectMetadataList
				if err := c.Client.Do(
					t.Context(),
					http.MethodGet,
					apiclient.At(kind, c.namespace),
					nil,
					&list,
				); err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, x := range list.Items {
					if x.Name != "kube-root-ca.crt" {
						n++
					}
				}
				return n == 0
			})
		}
	}
	for name, line := range map[string]string{"sweep": sweep, "csv": sweep + " -o csv", "capacity": capacity,
		"json": capacity + " -o json",
		"tune": "tune ../mine.yaml --vary pools[0].replicas=1..3 --runs 30 -r 3"} {
		t.Run(name, func(t *testing.T) {
			want, _, code := local.play(t, line)
			c := c.in(t, name, program, 2)
			got, text, there := c.play(t, line+" --indexes 4")
			if got != want || there != code {
				t.Errorf("exit code %d, expected %d:\n%s\n%s\nexpected\n%s", there, code, text, got, want)
			}
			empty(t, c)
		})
	}
	// Clients share one schedule, and the report is the one of a single client.
	t.Run("load", func(t *testing.T) {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"yes"}}],"usage":{"completion_tokens":1}}`))
		}))
		defer server.Close()
		line := "load ../mine.yaml --rate 100 -n 100 --view summary --target " + strings.TrimPrefix(server.URL, "http://")
		c := c.in(t, "load", program, 0)
		for _, all := range []int64{100, 200} { // again on the same volume
			got, text, code := c.play(t, line+" --indexes 3 --claim mine")
			if code != 0 || n.Load() != all || !strings.Contains(got, "100 requests") {
				t.Errorf("exit code %d, %d requests:\n%s\n%s", code, n.Load(), text, got)
			}
			empty(t, c)
		}
	})
	t.Run("another command", func(t *testing.T) {
		c := c.in(t, "another", program, 2)
		if _, text, code := c.play(t, sweep+" --indexes 2 --name one --keep-job"); code != 0 {
			t.Fatalf("exit code %d: %s", code, text)
		}
		if _, text, code := c.play(t, sweep+" --indexes 2 --name one -n 20"); code != 2 ||
			!strings.Contains(text, "plays another command") {
			t.Errorf("exit code %d: %s", code, text)
		}
	})
	// The first try of each index but 0 fails once, and the pod of index 0 is killed while it hangs.
	t.Run("retries", func(t *testing.T) {
		dir := t.TempDir()
		flaky := filepath.Join(dir, "flaky")
		text := "#!/bin/sh\ncase \"$*\" in *--share*)\n  i=${*##*--share }; i=${i%%/*}\n  if ! [ -e " + dir + "/$i ]; then\n" +
			"    touch " + dir + "/$i; echo broken at $i; [ $i = 0 ] && exec sleep 600; exit 1\n  fi;;\nesac\nexec " +
			program + " \"$@\"\n"
		if err := os.WriteFile(flaky, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		want, _, _ := local.play(t, sweep)
		c := c.in(t, "retries", flaky, 0)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			eventually.Is(t, "index 0 is killed", func() bool {
				_, err := os.Stat(filepath.Join(dir, "0"))
				return ctx.Err() != nil || err == nil && c.agent.Kill("mine-0-")
			})
		}()
		got, log, code := c.play(t, sweep+" --indexes 2 --name mine")
		stop()
		if got != want || code != 0 || !strings.Contains(log, "index 1 failed in pod mine-1-") ||
			!strings.Contains(log, "  broken at 1") || !strings.Contains(log, "exit code 137") {
			t.Errorf("exit code %d:\n%s\n%s", code, log, got)
		}
		empty(t, c)
	})
	t.Run("failure", func(t *testing.T) {
		dir := t.TempDir()
		broken := filepath.Join(dir, "broken")
		text := "#!/bin/sh\ncase \"$*\" in *--share*1/4*) [ -e " + dir + "/mended ] || { echo no disk; exit 1; };; esac\nexec " +
			program + " \"$@\"\n"
		if err := os.WriteFile(broken, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		want, _, _ := local.play(t, sweep)
		c := c.in(t, "failure", broken, 2)
		got, log, code := c.play(t, sweep+" --indexes 4 --retries 1 --name mine")
		if code != 5 || !strings.HasPrefix(got, "6 combinations") || !strings.Contains(log, "  no disk") ||
			!strings.Contains(log, "at the indexes 1") {
			t.Errorf("exit code %d:\n%s\n%s", code, log, got)
		}
		if err := os.WriteFile(filepath.Join(dir, "mended"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got, log, code = c.play(t, sweep+" --indexes 4 --retries 1 --name mine")
		if code != 0 || got != want || !strings.Contains(log, "has failed before") {
			t.Errorf("exit code %d after the repair:\n%s\n%s", code, log, got)
		}
		empty(t, c)
	})
	// A wrong image or a wrong flag of the pods is no reason to try again.
	t.Run("final", func(t *testing.T) {
		wrong := filepath.Join(t.TempDir(), "wrong")
		if err := os.WriteFile(wrong, []byte("#!/bin/sh\necho no such field; exit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		c := c.in(t, "final", wrong, 1)
		_, log, code := c.play(t, sweep+" --indexes 4 --name mine")
		n := strings.Count(log, "failed in pod") // the pods that began before the controller saw the first one fail
		if code == 0 || n < 1 || n > 4 || !strings.Contains(log, "  no such field") {
			t.Errorf("exit code %d:\n%s", code, log)
		}
		var job corev1.Pod
		if err := c.Client.Do(t.Context(), http.MethodGet, apiclient.At("jobs", c.namespace, "mine"), nil,
			&job); apierrors.IsNotFound(err) {
			t.Error("the failed Job is gone")
		}
	})
}

// A scenario of a cluster's objects is tuned, and the cluster has no request but lists. A user who may not list is
// reported.
func TestTuneFromCluster(t *testing.T) {
	c := &cluster{Cluster: testcluster.Start(t), bin: testcluster.Programs(t)}
	c.CreateCRDs(t)
	rendered, err := os.ReadFile("../../test/chart/testdata/default.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for one := range strings.SplitSeq(string(rendered), "\n---") {
		if !strings.Contains(one, "\nkind: DestinationRule") { // of Istio
			ours = append(ours, one)
		}
	}
	c.Create(t, strings.Join(ours, "\n---"))
	server, verbs := c.watched(t)
	dir := t.TempDir()
	run := func(kubeconfig string) (stdout, stderr string, code int) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "windtunnel"), "tune", "--from-cluster",
			"--save", dir, "--kubeconfig", kubeconfig, "--rate", "3", "-n", "60", "--runs", "20", "-r", "3")
		var out, text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &text
		_ = cmd.Run() // the code says it
		return out.String(), text.String(), cmd.ProcessState.ExitCode()
	}
	out, text, code := run(server)
	if code != 0 || !strings.Contains(out, "prefix-cache-scorer") || strings.Contains(text, "managedFields") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, text)
	}
	if got := verbs(); len(got) != 1 || got[http.MethodGet] == 0 {
		t.Errorf("requests of the API server: %v; expected GET alone", got)
	}
	t.Chdir(t.TempDir()) // the scenario finds its objects
	if again, err := exec.CommandContext(t.Context(), filepath.Join(c.bin, "windtunnel"), "scenario", "check",
		filepath.Join(dir, "scenario.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, again)
	}
	if out, text, code := run(c.KubeconfigOf(t, "default", "default")); code != 5 ||
		!strings.Contains(text, "cannot list resource") || !strings.Contains(text, "may list configmaps in default") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, text)
	}
}

// watched returns a kubeconfig of a proxy before the API server, and a function that counts its requests by method.
func (c *cluster) watched(t *testing.T) (kubeconfig string, verbs func() map[string]int) {
	t.Helper()
	to, err := url.Parse(c.Client.URL)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test's
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Method]++
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), c.Client.URL, server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}
