package jobs

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/imports"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/program"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
)

// source says which cluster --from-cluster reads.
type source struct {
	imports.Metrics
	Save string `placeholder:"DIR" help:"With --from-cluster, keep objects.yaml and scenario.yaml in DIR, for other commands."`
}

// read are the resources of a scenario, by their API. A cluster need not have those behind apps/v1.
var read = [][]string{{"api/v1", "configmaps", "services"}, {"apis/apps/v1", "deployments", "statefulsets"},
	{"apis/gateway.networking.k8s.io/v1", "gateways", "httproutes"},
	{"apis/inference.networking.k8s.io/v1", "inferencepools"},
	{"apis/inference.networking.x-k8s.io/v1alpha2", "inferencepools", "inferenceobjectives", "inferencemodelrewrites"},
	{"apis/llm-d.ai/v1alpha2", "inferenceobjectives", "inferencemodelrewrites"},
	{"apis/serving.kserve.io/v1alpha1", "inferencepools", "inferencemodels", "localmodels"},
	{"apis/keda.sh/v1alpha1", "scaledobjects"}, {"apis/autoscaling/v2", "horizontalpodautoscalers"}}

// mostTries is how often the command asks again where the API server says that it will answer later.
const mostTries = 10

// tune searches the configuration of a scenario that it makes of a namespace's objects and of Prometheus' metrics.
func (s *source) tune(o *console.Console, c *program.Tune, f *Flags) error {
	if c.File != "" || c.Recording != "" {
		return exit.Errorf(exit.Usage, "--from-cluster: found a scenario or a recording, too; expected one of them")
	}
	dir := s.Save
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "windtunnel-cluster-*"); err != nil {
			return exit.With(exit.Environment, err)
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return exit.Errorf(exit.Environment, "--save: %w", err)
	}
	a, err := f.client()
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	text, err := objectsOf(ctx, a, f.Namespace)
	stop()
	if err != nil {
		return err
	}
	objects := filepath.Join(dir, "objects.yaml")
	if err := os.WriteFile(objects, text, 0o600); err != nil {
		return exit.With(exit.Environment, err)
	}
	var made bytes.Buffer
	quiet := *o
	quiet.Stdout = &made
	if err := (&imports.Cmd{Metrics: s.Metrics, Files: []string{objects}}).Run(&quiet); err != nil {
		return err
	}
	c.File = filepath.Join(dir, "scenario.yaml")
	// The scenario names the objects relative to itself, so that the directory can be moved.
	text = bytes.ReplaceAll(made.Bytes(), []byte(objects), []byte(filepath.Base(objects)))
	if err := os.WriteFile(c.File, text, 0o600); err != nil {
		return exit.With(exit.Environment, err)
	}
	return c.Run(o)
}

// objectsOf returns a namespace's objects as YAML. It only reads.
func objectsOf(ctx context.Context, a *apiclient.Client, namespace string) ([]byte, error) {
	var out bytes.Buffer
	for _, of := range read {
		for _, resource := range of[1:] {
			var list struct {
				APIVersion, Kind string
				Items            []map[string]any
			}
			path := "/" + of[0] + "/namespaces/" + namespace + "/" + resource
			err := a.Do(ctx, http.MethodGet, path, nil, &list)
			for tries := 0; tries < mostTries && err != nil; tries++ {
				seconds, later := apierrors.SuggestsClientDelay(err)
				if !later || !pause.For(ctx, time.Duration(max(1, seconds))*time.Second) {
					break
				}
				err = a.Do(ctx, http.MethodGet, path, nil, &list)
			}
			switch {
			case apierrors.IsNotFound(err):
				continue // its CRD is not installed
			case apierrors.IsForbidden(err):
				return nil, exit.Hint(exit.Broken, err, "expected a user who may list "+resource+" in "+namespace)
			case err != nil:
				return nil, unreached(a, err)
			}
			for _, x := range list.Items {
				meta, _ := x["metadata"].(map[string]any)
				if meta["name"] == "kube-root-ca.crt" {
					continue
				}
				delete(meta, "managedFields")
				delete(x, "status")
				// Items of a list of a built-in resource have neither.
				x["apiVersion"], x["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
				text, err := yaml.Marshal(x)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(&out, "---\n%s", text)
			}
		}
	}
	if out.Len() == 0 {
		return nil, exit.Hint(exit.Input, fmt.Errorf("namespace %s has no objects of an inference gateway", namespace),
			"--namespace names the namespace of the InferencePool")
	}
	return out.Bytes(), nil
}
