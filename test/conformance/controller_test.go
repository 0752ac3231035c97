package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/up"
)

const (
	className      = "windtunnel"
	controllerName = "windtunnel.dev/gateway-controller"
)

// kinds are the objects that the controller reads.
var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	gatewayv1.SchemeGroupVersion.WithKind("GatewayClass"), gatewayv1.SchemeGroupVersion.WithKind("Gateway"),
	gatewayv1.SchemeGroupVersion.WithKind("HTTPRoute"), gatewayv1.SchemeGroupVersion.WithKind("ReferenceGrant"),
}

// controller starts what the cluster's objects describe, and writes the result into their status.
type controller struct {
	*cluster
	t    *testing.T
	logs *logs
	up   *up.Up // nil before the first Gateway

	mu      sync.Mutex
	listen  map[string]string // the actual address of a Gateway's address and port
	problem map[string]bool   // already logged
}

// run applies the cluster's changes until the context ends, and then stops everything.
func (c *controller) run(ctx context.Context) {
	c.after(nil)
	for {
		select {
		case <-ctx.Done():
			if c.up != nil {
				if err := c.up.Stop(context.Background()); err != nil {
					c.t.Error(err)
				}
			}
			return
		case <-c.changed:
			if err := c.once(ctx); err != nil && ctx.Err() == nil {
				c.say(err.Error())
			}
		}
	}
}

// say logs a problem once.
func (c *controller) say(text string) {
	if c.problem == nil {
		c.problem = map[string]bool{}
	}
	if !c.problem[text] {
		c.problem[text] = true
		c.t.Log("controller:", text)
	}
}

// once applies the objects as they are, and reports the result.
func (c *controller) once(ctx context.Context) error {
	set, generations, err := c.read(ctx)
	if err != nil {
		return err
	}
	program := gateway.Build(set, gateway.Options{Controller: controllerName})
	if c.up != nil || len(program.Gateways) > 0 {
		if err := c.bring(ctx, set); err != nil {
			return err // the objects keep the status of the state in force
		}
	}
	for _, s := range program.Status {
		generation := generations[s.Kind+"/"+s.Namespace+"/"+s.Name]
		switch s.Kind {
		case "GatewayClass":
			x := &gatewayv1.GatewayClass{}
			err = c.write(ctx, s, x,
				func() { x.Status.Conditions = conditions(x.Status.Conditions, s.Conditions, generation) })
		case "Gateway":
			x := &gatewayv1.Gateway{}
			err = c.write(ctx, s, x, func() { c.gateway(x, s, generation) })
		case "HTTPRoute":
			x := &gatewayv1.HTTPRoute{}
			err = c.write(ctx, s, x, func() { route(x, s, generation) })
		}
		if err != nil {
			c.after(nil) // it was changed meanwhile
			c.say(fmt.Sprintf("%s %s/%s: %v", s.Kind, s.Namespace, s.Name, err))
		}
	}
	return c.pods(ctx)
}

// read converts the objects to manifests. It logs and leaves out what the API server would have refused.
func (c *controller) read(ctx context.Context) (*gateway.Set, map[string]int64, error) {
	set, generations := &gateway.Set{}, map[string]int64{}
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := c.store.List(ctx, list); err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			x := &list.Items[i]
			x.SetGroupVersionKind(kind)
			x.SetManagedFields(nil)
			name := kind.Kind + "/" + x.GetNamespace() + "/" + x.GetName()
			generations[name] = x.GetGeneration()
			text, err := yaml.Marshal(x.Object)
			if err == nil {
				err = (&gateway.Set{}).Add(name, text)
			}
			if err != nil {
				c.say(fmt.Sprintf("%s is not read: %v", name, err))
				continue
			}
			if err := set.Add(name, text); err != nil {
				return nil, nil, err
			}
		}
	}
	return set, generations, nil
}

// bring applies the objects.
func (c *controller) bring(ctx context.Context, set *gateway.Set) (err error) {
	if c.up != nil {
		err = c.up.Apply(ctx, set)
	} else {
		c.up, err = up.Start(ctx,
			up.Options{Objects: set, Controller: controllerName, Dir: c.t.TempDir(), OwnAddresses: true, Note: c.say,
				Log: slog.New(c.logs)})
	}
	if err != nil {
		return err
	}
	listen := map[string]string{}
	for _, l := range c.up.Addresses().Listeners {
		at, err := url.Parse(l.URL)
		if err != nil {
			return err
		}
		listen[net.JoinHostPort(at.Hostname(), strconv.Itoa(l.Port))] = at.Host
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listen = listen
	return nil
}

// dial connects to the actual address of a Gateway's port, because a port below 1024 may be replaced.
func (c *controller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	if at := c.listen[address]; at != "" {
		address = at
	}
	c.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// write writes an object's status if it has changed.
func (c *controller) write(ctx context.Context, s gateway.Status, x client.Object, change func()) error {
	if err := c.store.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, x); err != nil {
		return client.IgnoreNotFound(err)
	}
	old := x.DeepCopyObject()
	if change(); reflect.DeepEqual(old, x) {
		return nil
	}
	return client.IgnoreNotFound(c.store.Status().Update(ctx, x))
}

// conditions returns the given conditions. A condition that has not changed keeps its time.
func conditions(old []metav1.Condition, list []gateway.Condition, generation int64) []metav1.Condition {
	out := slices.Clone(old)
	out = slices.DeleteFunc(out, func(o metav1.Condition) bool {
		return !slices.ContainsFunc(list, func(x gateway.Condition) bool { return x.Type == o.Type })
	})
	for _, x := range list {
		meta.SetStatusCondition(&out,
			metav1.Condition{Type: x.Type, Status: metav1.ConditionStatus(x.Status), Reason: x.Reason,
				Message: x.Message, ObservedGeneration: generation})
	}
	return out
}

func (c *controller) gateway(x *gatewayv1.Gateway, s gateway.Status, generation int64) {
	x.Status.Conditions = conditions(x.Status.Conditions, s.Conditions, generation)
	x.Status.Addresses = nil
	if c.up != nil {
		for _, l := range c.up.Addresses().Listeners {
			if l.Gateway != s.Namespace+"/"+s.Name {
				continue
			}
			if at, err := url.Parse(l.URL); err == nil && len(x.Status.Addresses) == 0 {
				kind := gatewayv1.IPAddressType
				x.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: &kind, Value: at.Hostname()}}
			}
		}
	}
	old := x.Status.Listeners
	x.Status.Listeners = nil
	for _, l := range s.Listeners {
		status := gatewayv1.ListenerStatus{Name: gatewayv1.SectionName(l.Name), AttachedRoutes: int32(l.Attached),
			SupportedKinds: []gatewayv1.RouteGroupKind{}}
		for _, k := range l.Kinds {
			group := gatewayv1.Group(gatewayv1.GroupName)
			status.SupportedKinds = append(status.SupportedKinds,
				gatewayv1.RouteGroupKind{Group: &group, Kind: gatewayv1.Kind(k)})
		}
		var before []metav1.Condition
		if i := slices.IndexFunc(old,
			func(o gatewayv1.ListenerStatus) bool { return string(o.Name) == l.Name }); i >= 0 {
			before = old[i].Conditions
		}
		status.Conditions = conditions(before, l.Conditions, generation)
		x.Status.Listeners = append(x.Status.Listeners, status)
	}
}

func route(x *gatewayv1.HTTPRoute, s gateway.Status, generation int64) {
	old := x.Status.Parents
	x.Status.Parents = []gatewayv1.RouteParentStatus{}
	for _, p := range s.Parents {
		group, kind := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind("Gateway")
		ref := gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(p.Ref.Name)}
		if p.Ref.Namespace != "" {
			ref.Namespace = (*gatewayv1.Namespace)(&p.Ref.Namespace)
		}
		if p.Ref.Section != "" {
			ref.SectionName = (*gatewayv1.SectionName)(&p.Ref.Section)
		}
		if p.Ref.Port != 0 {
			port := gatewayv1.PortNumber(p.Ref.Port)
			ref.Port = &port
		}
		var before []metav1.Condition
		if i := slices.IndexFunc(old,
			func(o gatewayv1.RouteParentStatus) bool { return reflect.DeepEqual(o.ParentRef, ref) }); i >= 0 {
			before = old[i].Conditions
		}
		x.Status.Parents = append(x.Status.Parents,
			gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: controllerName,
				Conditions: conditions(before, p.Conditions, generation)})
	}
}

// pods creates the pods of Deployments, because the suite waits for them and reads their logs.
func (c *controller) pods(ctx context.Context) error {
	if c.up == nil {
		return nil
	}
	deployments := &appsv1.DeploymentList{}
	if err := c.store.List(ctx, deployments); err != nil {
		return err
	}
	running := map[string]bool{}
	for _, p := range c.up.Addresses().Pods {
		running[p.Namespace+"/"+p.Name] = true
		i := slices.IndexFunc(deployments.Items, func(d appsv1.Deployment) bool {
			number, ours := strings.CutPrefix(p.Name, d.Name+"-")
			_, err := strconv.Atoi(number)
			return ours && err == nil && d.Namespace == p.Namespace
		})
		if i < 0 {
			continue
		}
		x := &corev1.Pod{}
		if c.store.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, x) == nil {
			continue
		}
		ip := ""
		for _, at := range p.Ports {
			ip, _, _ = net.SplitHostPort(at)
		}
		x = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name,
			Labels: deployments.Items[i].Spec.Template.Labels},
			Spec: deployments.Items[i].Spec.Template.Spec,
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
		status := x.Status
		if err := c.store.Create(ctx, x); err != nil {
			return err
		}
		x.Status = status
		if err := c.store.Status().Update(ctx, x); err != nil {
			return err
		}
	}
	pods := &corev1.PodList{}
	if err := c.store.List(ctx, pods); err != nil {
		return err
	}
	for i := range pods.Items {
		if x := &pods.Items[i]; !running[x.Namespace+"/"+x.Name] {
			if err := c.store.Delete(ctx, x); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}
