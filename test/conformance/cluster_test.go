package conformance

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
	"sigs.k8s.io/gateway-api/pkg/consts"
)

// cluster does what the suite needs of an API server: it keeps objects with generations, and notifies the controller
// of changes.
type cluster struct {
	store client.WithWatch // the controller writes through it
	// Client is the suite's. Its writes are sent to changed.
	client.Client
	changed chan struct{} // has one place, so that concurrent changes are one notification
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install,
		gatewayv1alpha2.Install, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// The suite reads the API's version and channel from its CRDs.
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "httproutes." + gatewayv1.GroupName,
			Annotations: map[string]string{consts.BundleVersionAnnotation: consts.BundleVersion,
				consts.ChannelAnnotation: "experimental"}}}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: className, Generation: 1},
		Spec: gatewayv1.GatewayClassSpec{ControllerName: controllerName}}
	c := &cluster{changed: make(chan struct{}, 1)}
	c.store = fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd, class).
		WithStatusSubresource(&gatewayv1.GatewayClass{}, &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{},
			&corev1.Pod{}).Build()
	c.Client = interceptor.NewClient(c.store, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, x client.Object, o ...client.CreateOption) error {
			x.SetGeneration(1)
			x.SetCreationTimestamp(metav1.NewTime(time.Now()))
			return c.after(w.Create(ctx, x, o...))
		},
		Update: func(ctx context.Context, w client.WithWatch, x client.Object, o ...client.UpdateOption) error {
			old := x.DeepCopyObject().(client.Object)
			if err := w.Get(ctx, client.ObjectKeyFromObject(x), old); err != nil {
				return err
			}
			return c.after(w.Update(ctx, bumped(old, x), o...))
		},
		Patch: func(ctx context.Context, w client.WithWatch, x client.Object, p client.Patch,
			o ...client.PatchOption) error {
			old := x.DeepCopyObject().(client.Object)
			if err := w.Get(ctx, client.ObjectKeyFromObject(x), old); err != nil {
				return err
			}
			if err := w.Patch(ctx, x, p, o...); err != nil {
				return err
			}
			return c.after(w.Update(ctx, bumped(old, x)))
		},
		Delete: func(ctx context.Context, w client.WithWatch, x client.Object, o ...client.DeleteOption) error {
			return c.after(w.Delete(ctx, x, o...))
		},
	})
	return c
}

func (c *cluster) after(err error) error {
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return err
}

// bumped sets an object's generation and times after a change.
func bumped(old, x client.Object) client.Object {
	x.SetGeneration(old.GetGeneration())
	x.SetCreationTimestamp(old.GetCreationTimestamp())
	if !reflect.DeepEqual(bare(old), bare(x)) {
		x.SetGeneration(old.GetGeneration() + 1)
	}
	return x
}

// bare returns an object without the fields that do not affect its generation.
func bare(x client.Object) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		panic(err) // the object was decoded before
	}
	m = maps.Clone(m)
	delete(m, "metadata")
	delete(m, "status")
	return m
}
