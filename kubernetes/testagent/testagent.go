// Package testagent stands in for nodes in tests: against a real API server, it runs a namespace's pods as processes of
// this machine. It binds pods to a node that it registers, mounts their volumes as directories, starts the programs
// that stand for their images, writes their status and obeys deletion. It serves their logs as a kubelet does.
//
// A process has no file system of its own. The agent therefore replaces mount paths in commands, arguments, environment
// and working directory by directories. Each pod has a loopback address of its own, which replaces 0.0.0.0. A pod is
// ready when its readiness probe has passed once. The agent pulls no images.
package testagent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windtunnel/windtunnel/internal/child"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
)

// Agent runs pods. Set its fields before Start.
type Agent struct {
	Client    *apiclient.Client
	Namespace string
	// Images has the program that stands for each image.
	Images map[string]string
	// Files has files of this machine that stand for files of images, by their paths.
	Files map[string]string
	// Kubeconfig returns a file that reaches the API server as a service account. Pods with a token get it as
	// KUBECONFIG.
	Kubeconfig func(t testing.TB, namespace, account string) string
	// AtOnce bounds how many pods run at a time; 0 is no bound.
	AtOnce int

	t    testing.TB
	dir  string
	node string

	mu    sync.Mutex
	pods  map[string]*pod // by UID
	block [2]byte         // of the pods' addresses
}

// pod is a pod of this node.
type pod struct {
	*corev1.Pod
	log     string
	process *child.Process
	started metav1.Time
	ip      string
	ready   bool
	stops   bool // its process was asked to end
	done    bool // its last status is written
}

// Start registers the node and runs pods until the test ends.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	a.t, a.dir, a.node, a.pods = t, t.TempDir(), "node-"+a.Namespace, map[string]*pod{}
	a.block = [2]byte{byte(64 + rand.IntN(128)), byte(rand.IntN(256))} // another than that of an agent beside this one
	logs := httptest.NewTLSServer(http.HandlerFunc(a.serveLog))
	_, port, err := net.SplitHostPort(logs.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(kubelet)}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if err := a.Client.Do(t.Context(), http.MethodPost, "/api/v1/nodes", node, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Client.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/"+a.node+"/status", node, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for pause.For(ctx, 50*time.Millisecond) {
			if err := a.sync(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("agent: %v", err)
				return
			}
		}
	})
	t.Cleanup(func() {
		stop()
		loop.Wait()
		logs.Close()
		for _, p := range a.pods {
			if p.process != nil {
				p.process.Kill()
			}
		}
	})
}

// Kill kills the process of a running pod whose name begins so, and reports whether there was one.
func (a *Agent) Kill(prefix string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		if strings.HasPrefix(p.Name, prefix) && p.process != nil && !p.process.Ended() {
			p.process.Kill()
			return true
		}
	}
	return false
}

// sync compares the pods with their processes once.
func (a *Agent) sync(ctx context.Context) error {
	var list corev1.PodList
	if err := a.Client.Do(ctx, http.MethodGet, apiclient.At("pods", a.Namespace), nil, &list); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	running := 0
	for _, p := range a.pods {
		if p.process != nil && !p.done {
			running++
		}
	}
	for i := range list.Items {
		p := &list.Items[i]
		own := a.pods[string(p.UID)]
		var err error
		switch {
		case p.DeletionTimestamp != nil:
			err = a.remove(ctx, p, own)
		case own == nil && a.AtOnce > 0 && running >= a.AtOnce:
		case own == nil && p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending:
			running++
			err = a.start(ctx, p)
		case own != nil && !own.ready && own.process != nil && !own.process.Ended() && passes(ctx, own):
			own.ready = true
			err = a.status(ctx, own)
		case own != nil && own.process != nil && own.process.Ended() && !own.done:
			own.done = true
			err = a.status(ctx, own)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// passes reports whether a pod's readiness probe passes now.
func passes(ctx context.Context, p *pod) bool {
	probe := p.Spec.Containers[0].ReadinessProbe
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	port := func(n int) string { return net.JoinHostPort(p.ip, strconv.Itoa(n)) }
	switch {
	case probe == nil:
		return true
	case probe.HTTPGet != nil:
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+port(probe.HTTPGet.Port.IntValue())+probe.HTTPGet.Path, nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode < http.StatusBadRequest
	case probe.GRPC != nil:
		c, err := new(net.Dialer).DialContext(ctx, "tcp", port(int(probe.GRPC.Port)))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	return false
}

// remove asks a deleted pod's process to end, and removes the pod when it has.
func (a *Agent) remove(ctx context.Context, p *corev1.Pod, own *pod) error {
	if own != nil && own.process != nil && !own.process.Ended() {
		grace := time.Duration(0)
		if s := p.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		if !own.stops {
			own.stops = true
			go own.process.Stop(ctx, grace)
		}
		return nil
	}
	if own != nil && !own.done {
		own.done = true
		if err := a.status(ctx, own); err != nil {
			return err
		}
	}
	now := int64(0)
	return a.Client.Do(ctx, http.MethodDelete, apiclient.At("pods", p.Namespace, p.Name),
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}, nil)
}

// start binds a pod and starts the process of its one container.
func (a *Agent) start(ctx context.Context, p *corev1.Pod) error {
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
		Target: corev1.ObjectReference{Kind: "Node", Name: a.node}}
	if err := a.Client.Do(ctx, http.MethodPost, apiclient.At("pods", p.Namespace, p.Name, "binding"), bind,
		nil); err != nil {
		return err
	}
	dir := filepath.Join(a.dir, string(p.UID))
	own := &pod{Pod: p, log: filepath.Join(dir, "log"), started: metav1.Now(),
		ip: net.IPv4(127, a.block[0], a.block[1], byte(1+len(a.pods)%250)).String()}
	a.pods[string(p.UID)] = own
	own.ready = p.Spec.Containers[0].ReadinessProbe == nil
	for i := range p.Spec.InitContainers {
		cmd, err := a.command(ctx, own, &p.Spec.InitContainers[i], dir)
		if err != nil {
			return err
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("container %s: %w: %s", p.Spec.InitContainers[i].Name, err, text)
		}
	}
	cmd, err := a.command(ctx, own, &p.Spec.Containers[0], dir)
	if err != nil {
		return err
	}
	if own.process, err = child.Run(cmd, own.log); err != nil {
		return err
	}
	return a.status(ctx, own)
}

// command returns the process of a container.
func (a *Agent) command(ctx context.Context, p *pod, c *corev1.Container, dir string) (*exec.Cmd, error) {
	here, err := a.mount(ctx, p, c, dir)
	if err != nil {
		return nil, err
	}
	env, err := p.environment(c)
	if err != nil {
		return nil, err
	}
	line := slices.Concat(c.Command, c.Args)
	for i, x := range line {
		line[i] = here(expand(x, env))
	}
	if len(c.Command) == 0 {
		program := a.Images[c.Image] // a path of this machine, and of no mount
		if program == "" {
			return nil, fmt.Errorf("no program stands for the image %s", c.Image)
		}
		line = slices.Insert(line, 0, program)
	}
	cmd := exec.Command(line[0], line[1:]...)
	if cmd.Dir = dir; c.WorkingDir != "" {
		cmd.Dir = here(c.WorkingDir)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if token := p.Spec.AutomountServiceAccountToken; a.Kubeconfig != nil && (token == nil || *token) {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+a.Kubeconfig(a.t, p.Namespace, p.Spec.ServiceAccountName))
	}
	for _, x := range env {
		cmd.Env = append(cmd.Env, x[0]+"="+here(x[1]))
	}
	return cmd, nil
}

// mount makes directories of a container's volumes, and returns a function that replaces their paths in a text.
func (a *Agent) mount(ctx context.Context, p *pod, c *corev1.Container, dir string) (func(string) string, error) {
	at := map[string]string{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		at[v.Name] = filepath.Join(dir, "volumes", v.Name)
		switch {
		case v.HostPath != nil:
			at[v.Name] = v.HostPath.Path
		case v.PersistentVolumeClaim != nil:
			at[v.Name] = a.Claim(v.PersistentVolumeClaim.ClaimName)
		case v.ConfigMap != nil:
			if err := a.configMap(ctx, p.Namespace, v.ConfigMap, at[v.Name]); err != nil {
				return nil, err
			}
		case v.EmptyDir == nil && v.Projected == nil: // a projected one has the token, for which there is KUBECONFIG
			return nil, fmt.Errorf("volume %s: expected an emptyDir, hostPath, configMap or persistentVolumeClaim",
				v.Name)
		}
		if err := os.MkdirAll(at[v.Name], 0o755); err != nil {
			return nil, err
		}
	}
	mounts := slices.SortedFunc(slices.Values(c.VolumeMounts), func(x, y corev1.VolumeMount) int {
		return len(y.MountPath) - len(x.MountPath) // the longest first
	})
	pairs := []string{"0.0.0.0", p.ip}
	for path, file := range a.Files {
		pairs = append(pairs, path+"/", file+"/")
	}
	for _, m := range mounts {
		pairs = append(pairs, m.MountPath+"/", filepath.Join(at[m.Name], m.SubPath)+"/")
	}
	paths := strings.NewReplacer(pairs...)
	return func(text string) string { return strings.TrimSuffix(paths.Replace(text+"/"), "/") }, nil
}

// Claim returns the directory of a PersistentVolumeClaim.
func (a *Agent) Claim(name string) string { return filepath.Join(a.dir, "claims", name) }

func (a *Agent) configMap(ctx context.Context, namespace string, v *corev1.ConfigMapVolumeSource, dir string) error {
	var m corev1.ConfigMap
	if err := a.Client.Do(ctx, http.MethodGet, apiclient.At("configmaps", namespace, v.Name), nil, &m); err != nil {
		return err
	}
	text := map[string][]byte{}
	for key, x := range m.Data {
		text[key] = []byte(x)
	}
	for key, x := range m.BinaryData {
		text[key] = x
	}
	items := v.Items
	for key := range text {
		if v.Items == nil {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, x := range items {
		path := filepath.Join(dir, filepath.FromSlash(x.Path))
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text[x.Key], 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// environment returns a container's variables, in order.
func (p *pod) environment(c *corev1.Container) (env [][2]string, err error) {
	for i := range c.Env {
		e := &c.Env[i]
		value := expand(e.Value, env)
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil {
				return nil, fmt.Errorf("env %s: expected a value or a field of the pod", e.Name)
			}
			switch field := e.ValueFrom.FieldRef.FieldPath; field {
			case "metadata.name":
				value = p.Name
			case "metadata.namespace":
				value = p.Namespace
			case "status.podIP":
				value = p.ip
			case "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']",
				"metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']":
				value = p.Annotations[batchv1.JobCompletionIndexAnnotation]
			default:
				return nil, fmt.Errorf("env %s: the agent does not know the field %s", e.Name, field)
			}
		}
		env = append(env, [2]string{e.Name, value})
	}
	return env, nil
}

// expand replaces $(NAME) by the value of a variable, as a kubelet does.
func expand(text string, env [][2]string) string {
	for _, x := range env {
		text = strings.ReplaceAll(text, "$("+x[0]+")", x[1])
	}
	return text
}

// status writes a pod's status.
func (a *Agent) status(ctx context.Context, p *pod) error {
	c := corev1.ContainerStatus{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: p.started}}}
	s := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.ip, HostIP: "127.0.0.1", StartTime: &p.started,
		PodIPs: []corev1.PodIP{{IP: p.ip}}}
	ready := corev1.ConditionFalse
	if p.process != nil && !p.process.Ended() {
		if c.Ready = p.ready; p.ready {
			ready = corev1.ConditionTrue
		}
	} else {
		ended := &corev1.ContainerStateTerminated{StartedAt: p.started, FinishedAt: metav1.Now(), Reason: "Completed"}
		s.Phase = corev1.PodSucceeded
		var code *exec.ExitError
		switch {
		case p.process == nil:
			ended.ExitCode = 128
		case errors.As(p.process.Wait(), &code):
			if ended.ExitCode = int32(code.ExitCode()); ended.ExitCode < 0 {
				ended.ExitCode = 137 // as a shell counts SIGKILL
			}
		}
		if ended.ExitCode != 0 {
			s.Phase, ended.Reason = corev1.PodFailed, "Error"
		}
		c.State = corev1.ContainerState{Terminated: ended}
	}
	s.ContainerStatuses = []corev1.ContainerStatus{c}
	for _, x := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: x, Status: ready,
			LastTransitionTime: metav1.Now()})
	}
	return a.Client.Do(ctx, http.MethodPatch, apiclient.At("pods", p.Namespace, p.Name, "status"),
		map[string]any{"status": s}, nil)
}

// serveLog serves /containerLogs/NAMESPACE/POD/CONTAINER.
func (a *Agent) serveLog(w http.ResponseWriter, r *http.Request) {
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var p *pod
	a.mu.Lock()
	for _, x := range a.pods {
		if len(part) == 4 && x.Namespace == part[1] && x.Name == part[2] {
			p = x
		}
	}
	a.mu.Unlock()
	if p == nil || p.process == nil {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("follow") == "true" {
		select {
		case <-p.process.Done():
		case <-r.Context().Done():
			return
		}
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
		text = []byte(strings.Join(lines[max(0, len(lines)-n):], ""))
	}
	_, _ = w.Write(text) // a reader that leaves needs no log
}
