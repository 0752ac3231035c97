// Package chart tests deploy/chart with Helm's own code: what it renders, what it refuses, and whether an API server
// would accept the objects.
package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/packed"
)

var update = flag.Bool("update", false, "write the golden files again")

const dir = "../../deploy/chart"

// The upstream releases whose schemas and CRDs the objects must satisfy.
const (
	kubernetes = "k8s.io/kubernetes@v1.34.2"
	gatewayAPI = "sigs.k8s.io/gateway-api@v1.6.1"
	extension  = "sigs.k8s.io/gateway-api-inference-extension@v1.5.0"
)

// customs are the kinds that CRDs define.
var customs = []string{"GatewayClass", "Gateway", "HTTPRoute", "InferencePool", "InferenceObjective"}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns what helm template prints for values, apart from the notes.
func render(t *testing.T, values []byte) (string, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.Unmarshal(values, &given); err != nil {
		t.Fatal(err)
	}
	c := load(t)
	with, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "demo", Namespace: "default",
		Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	made, err := engine.Render(c, with)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if strings.HasSuffix(name, ".yaml") {
			for _, text := range objects(made[name]) {
				out.WriteString("---\n" + text + "\n")
			}
		}
	}
	return out.String(), nil
}

// objects splits a text into YAML documents, and leaves out the empty ones.
func objects(text string) (out []string) {
	for _, x := range strings.Split("\n"+text, "\n---") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}

// goldens are the sets of values, by name.
func goldens(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(names) < 6 {
		t.Fatalf("found %d sets of values, %v", len(names), err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(name, ".values.yaml")] = text
	}
	return out
}

func TestGoldens(t *testing.T) {
	for name, values := range goldens(t) {
		got, err := render(t, values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden := name + ".golden.yaml"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != got {
			t.Errorf("%s differs from what the chart renders (%v); make test-chart UPDATE=1 writes it again",
				golden, err)
		}
	}
	digest, err := packed.Digest(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/digest", []byte(digest+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLint(t *testing.T) {
	for name, text := range goldens(t) {
		var values map[string]any
		if err := yaml.Unmarshal(text, &values); err != nil {
			t.Fatal(err)
		}
		version := &chartutil.DefaultCapabilities.KubeVersion
		for _, m := range lint.AllWithKubeVersion(dir, values, "default", version).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// Helm refuses wrong values before it creates something, with the value's place.
func TestRefused(t *testing.T) {
	for _, x := range [][2]string{
		{"epp: {replicas: many}", "/epp/replicas"},
		{"epp: {repliccas: 2}", "repliccas"},
		{"epp: {image: ghcr.io/windtunnel/windtunnel-k8s:v0.1.0}",
			"epp.image: found windtunnel v0.1.0, and the chart has v0.0.0"},
		{"image: {tag: v9.9.9}", "image.tag: found windtunnel v9.9.9; the chart is of v0.0.0"},
		{"gateway: {port: 70000}", "/gateway/port"},
		{"gateway: {className: ''}", "/gateway/className"},
		{"{gateway: {className: windtunnel}, bodyBasedRouter: {enabled: true}}",
			"gateway.className: found windtunnel, which asks no body-based router"},
		{"epp: {leaderElection: 2}", "/epp/leaderElection"},
		{"models: {other: {name: m}}", "models: found 2, and no body-based router"},
		{"models: {llama: {name: ''}}", "/models/llama/name"},
		{"models: {Llama_1: {name: m}}", "Llama_1"},
		{"dynamo: {placement: service}", "dynamo.image: there is none"},
		{"dynamo: {placement: cloud}", "/dynamo/placement"},
		{"epp: {image: no tag}", "/epp/image"},
		{"{epp: {image: x/epp:v1}, kvCacheManager: {enabled: true}}",
			"models.llama.pickerConfig: there is none"},
		{"predictor: {trainingImage: 'x/latency-training:v1'}", "expected both or none"},
		{"{epp: {image: 'x/llm-d-router-endpoint-picker:v0.10.0'}, " +
			"sidecar: {image: 'x/llm-d-router-disagg-sidecar:v0.9.0'}}",
			"epp.image: found llm-d-router v0.10.0, and sidecar.image has v0.9.0"},
	} {
		_, err := render(t, []byte(x[0]))
		if err == nil || !strings.Contains(err.Error(), x[1]) {
			t.Errorf("%s: %v; expected %q", x[0], err, x[1])
		}
	}
}

// module returns the folder of a Go module, which go fetches once.
func module(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", name).Output()
	var found struct{ Dir string }
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil {
		t.Fatalf("%s: %v %s", name, err, out)
	}
	return found.Dir
}

// The API server's own schemas accept every object, and know all of its fields.
func TestSchemas(t *testing.T) {
	v, err := validator.New([]string{kubernetesSchemas(t)}, validator.Opts{Strict: true, RejectKinds: nil,
		SkipKinds: maps.Collect(func(yield func(string, struct{}) bool) {
			for _, kind := range append(customs, "EnvoyFilter", "DestinationRule") { // TestCustomResources
				yield(kind, struct{}{})
			}
		})})
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range goldens(t) {
		text, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.Validate(name, io.NopCloser(strings.NewReader(text))) {
			if r.Status != validator.Valid && r.Status != validator.Skipped {
				sig, _ := r.Resource.Signature()
				t.Errorf("%s: %+v: %v", name, sig, r.Err)
			}
		}
	}
}

// kubernetesSchemas writes the API server's schemas in kubeconform's layout, and returns its template of paths.
func kubernetesSchemas(t *testing.T) string {
	t.Helper()
	specs, err := filepath.Glob(filepath.Join(module(t, kubernetes), "api/openapi-spec/v3/*_openapi.json"))
	if err != nil || len(specs) == 0 {
		t.Fatalf("%s has no schemas: %v", kubernetes, err)
	}
	to := t.TempDir()
	for _, spec := range specs {
		text, err := os.ReadFile(spec)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/definitions/"))
		var document struct {
			Components struct {
				Schemas map[string]map[string]any
			}
		}
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		definitions := document.Components.Schemas
		for name, s := range definitions {
			closed(s)
			if strings.HasSuffix(name, "intstr.IntOrString") {
				definitions[name] = map[string]any{"type": []string{"integer", "string"}}
			}
			if strings.HasSuffix(name, "resource.Quantity") {
				definitions[name] = map[string]any{"type": []string{"number", "string"}}
			}
		}
		for name, s := range definitions {
			kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
			if len(kinds) != 1 {
				continue
			}
			kind := kinds[0].(map[string]any)
			version := kind["version"].(string)
			file := fmt.Sprintf("%s-%s-%s.json", kind["kind"], cmp.Or(kind["group"].(string), version), version)
			out, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + name, "definitions": definitions})
			if err == nil {
				err = os.WriteFile(filepath.Join(to, strings.ToLower(file)), out, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return to + "/{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json"
}

// closed forbids fields that a schema does not name.
func closed(s map[string]any) {
	if _, ok := s["properties"]; ok && s["additionalProperties"] == nil {
		s["additionalProperties"] = false
	}
}

// The CRDs of the Gateway API and of the inference extension accept every object of theirs, with their CEL rules and
// without an unknown field.
func TestCustomResources(t *testing.T) {
	kinds := customKinds(t)
	seen := map[string]bool{}
	for name, values := range goldens(t) {
		text, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range objects(text) {
			seen[kinds.check(t, name, x)] = true
		}
	}
	for _, kind := range customs {
		if !seen[kind] {
			t.Errorf("no set of values has a %s", kind)
		}
	}
	broken := "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: x}\n" +
		"spec: {rules: [{timeouts: {request: 1s, backendRequest: 2s}}]}"
	if err := kinds.errors(t, broken); err == nil {
		t.Error("a broken CEL rule was not found")
	}
}

type custom struct {
	structural *schema.Structural
	rules      *cel.Validator
	validator  validation.SchemaValidator
}

type kinds map[string]custom // by apiVersion and kind

func customKinds(t *testing.T) kinds {
	t.Helper()
	out := kinds{}
	for _, at := range []string{filepath.Join(module(t, gatewayAPI), "config/crd/standard"),
		filepath.Join(module(t, extension), "config/crd/bases")} {
		files, err := filepath.Glob(at + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no CRDs: %v", at, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			var crd apiv1.CustomResourceDefinition
			if err := errors.Join(err, yaml.Unmarshal(text, &crd)); err != nil {
				t.Fatal(err)
			}
			for _, v := range crd.Spec.Versions {
				var internal apiextensions.JSONSchemaProps
				if crd.Kind != "CustomResourceDefinition" {
					continue
				}
				err := apiv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema,
					&internal, nil)
				var x custom
				if err == nil {
					x.structural, err = schema.NewStructural(&internal)
				}
				if err == nil {
					x.validator, _, err = validation.NewSchemaValidator(&internal)
				}
				if err != nil {
					t.Fatal(err)
				}
				x.rules = cel.NewValidator(x.structural, true, celconfig.PerCallLimit)
				out[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = x
			}
		}
	}
	return out
}

// check reports what is wrong with an object, and returns its kind if a CRD defines it.
func (k kinds) check(t *testing.T, name, text string) string {
	t.Helper()
	var x struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(text), &x); err != nil {
		t.Fatal(err)
	}
	if _, ok := k[x.APIVersion+" "+x.Kind]; !ok {
		return ""
	}
	if err := k.errors(t, text); err != nil {
		t.Errorf("%s: %s: %v", name, x.Kind, err)
	}
	return x.Kind
}

func (k kinds) errors(t *testing.T, text string) error {
	t.Helper()
	var x map[string]any
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err := errors.Join(err, kubejson.Unmarshal(raw, &x)); err != nil { // whole numbers are int64, as CEL takes them
		t.Fatal(err)
	}
	kind := k[fmt.Sprintf("%v %v", x["apiVersion"], x["kind"])]
	if kind.structural != nil {
		defaulting.Default(x, kind.structural)
	}
	all := validation.ValidateCustomResource(field.NewPath(""), x, kind.validator)
	if kind.rules != nil {
		wrong, _ := kind.rules.Validate(t.Context(), field.NewPath(""), kind.structural, x, nil,
			celconfig.RuntimeCELCostBudget)
		all = append(all, wrong...)
	}
	return errors.Join(append(unknown("", x["spec"], kind.structural.Properties["spec"]), all.ToAggregate())...)
}

// unknown finds fields that a structural schema does not have.
func unknown(at string, value any, s schema.Structural) (out []error) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			inner, ok := s.Properties[name]
			if !ok && s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
				inner, ok = *s.AdditionalProperties.Structural, true
			}
			if !ok && !s.XPreserveUnknownFields {
				out = append(out, fmt.Errorf("%s.%s: unknown field", at, name))
				continue
			}
			out = append(out, unknown(at+"."+name, v, inner)...)
		}
	case []any:
		for i, v := range value {
			if s.Items != nil {
				out = append(out, unknown(fmt.Sprintf("%s[%d]", at, i), v, *s.Items)...)
			}
		}
	}
	return out
}
