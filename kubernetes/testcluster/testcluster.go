// Package testcluster starts a real API server for tests: etcd, kube-apiserver and kube-controller-manager, on free
// ports of the loopback address. hack/kubernetes builds the three. There is no scheduler and no kubelet: package
// testagent runs pods.
package testcluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/child"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
)

// Version is the version of Kubernetes that the servers have.
const Version = "1.34.2"

// Cluster is a running API server with its controllers.
type Cluster struct {
	// Config reaches the API server as an administrator, and Kubeconfig is the file that does.
	Config     *rest.Config
	Kubeconfig string
	Client     *apiclient.Client
}

// controllers are those that the tests need. A controller of nodes would evict the pods of a node without a kubelet's
// lease.
const controllers = "job-controller,deployment-controller,replicaset-controller,serviceaccount-controller," +
	"garbage-collector-controller,persistentvolumeclaim-protection-controller,endpointslice-controller," +
	"namespace-controller,disruption-controller"

const token = "administrator"

// Start starts a cluster that ends with the test. It skips the test where the programs are absent, unless
// WINDTUNNEL_KUBERNETES is set, as make test-kubernetes does.
func Start(t testing.TB) *Cluster {
	t.Helper()
	cache, err := cachedir.Dir(nil)
	bin := filepath.Join(cache, "kubernetes", Version)
	if err == nil {
		_, err = os.Stat(filepath.Join(bin, "kube-controller-manager"))
	}
	if err != nil && os.Getenv("WINDTUNNEL_KUBERNETES") == "" {
		t.Skipf("make test-kubernetes builds what this test needs: %v", err)
	}
	if err != nil {
		t.Fatalf("hack/kubernetes builds what this test needs: %v", err)
	}
	dir, port := t.TempDir(), freeport.Row(t, 3)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	address := fmt.Sprintf("https://127.0.0.1:%d", port+2)
	config := &rest.Config{Host: address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS: -1}
	client, err := apiclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer := write("signer.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c := &Cluster{Config: config, Client: client, Kubeconfig: write("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: test, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, address, token))}
	start := func(name string, args ...string) {
		p, err := child.Run(exec.Command(filepath.Join(bin, name), args...), filepath.Join(dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: %s", name, p.Tail(2000))
			}
			p.Kill()
		})
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", port)
	start(
		"etcd",
		"--data-dir",
		filepath.Join(dir, "etcd"),
		"--listen-client-urls",
		etcd,
		"--advertise-client-urls",
		etcd,
		"--listen-peer-urls",
		fmt.Sprintf("http://127.0.0.1:%d", port+1),
		"--unsafe-no-fsync",
		"--log-level",
		"error",
	)
	start("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(port+2), "--cert-dir", filepath.Join(dir, "certs"),
		"--token-auth-file", write("tokens", token+",admin,admin,system:masters\n"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://windtunnel.test", "--service-account-signing-key-file", signer,
		"--service-account-key-file", signer, "--service-cluster-ip-range", "10.0.0.0/24",
		"--kubelet-preferred-address-types", "InternalIP", "--endpoint-reconciler-type", "none", "-v", "1")
	eventually.Is(t, "the API server is ready", func() bool {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		return client.Do(ctx, http.MethodGet, "/readyz", nil, nil) == nil
	})
	start("kube-controller-manager", "--kubeconfig", c.Kubeconfig, "--controllers", controllers, "--leader-elect=false",
		"--service-account-private-key-file", signer, "--secure-port", "0", "-v", "1")
	eventually.Is(t, "the default service account exists", func() bool {
		account := apiclient.At("serviceaccounts", "default", "default")
		return client.Do(t.Context(), http.MethodGet, account, nil, nil) == nil
	})
	return c
}

// Programs builds windtunnel and windtunnel-k8s as one release for a test in a package of the Kubernetes module, and
// returns their directory.
func Programs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for from, name := range map[string]string{"../..": "windtunnel", "..": "windtunnel-k8s"} {
		cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "-ldflags",
			"-X github.com/windtunnel/windtunnel/internal/version.release=v0.0.0-test", "./cmd/"+name)
		cmd.Dir = from
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return dir
}
