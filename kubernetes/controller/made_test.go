package controller

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

const ours = "ghcr.io/windtunnel/windtunnel-k8s:v1.0.0"

// parse reads YAML documents as an API server's client does.
func parse(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, document := range strings.Split("\n"+text, "\n---") {
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		x := map[string]any{}
		if err := kubejson.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		delete(x, "status")
		out = append(out, &unstructured.Unstructured{Object: x})
	}
	return out
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// document003 has document 003's InferenceModel and InferencePool, as windtunnel up plays them.
func document003(t *testing.T) string {
	t.Helper()
	const at = "../../examples/manifests/document-003/"
	return readFile(t, at+"model.yaml") + "\n---\n" + readFile(t, at+"pool.yaml")
}

// The golden files have what each set of objects comes to, in the form in which the API server gets it.
func TestMade(t *testing.T) {
	for name, x := range map[string]struct {
		text   string
		images Images
	}{
		"document-003":     {document003(t), Images{Own: ours}},
		"local-model":      {readFile(t, "testdata/local-model.yaml"), Images{Own: ours}},
		"unified":          {readFile(t, "testdata/unified.yaml"), Images{Own: ours}},
		"with-real-images": {document003(t), Images{ours, "vllm/vllm-openai:v0.19.0", "llm-d/sidecar:v0.9.0"}},
	} {
		m, err := makeObjects(parse(t, x.text), x.images)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got bytes.Buffer
		for _, o := range m.objects {
			text, err := yaml.Marshal(runtime.DeepCopyJSON(o.Object)) // panics at what JSON does not have
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("---\n")
			got.Write(text)
		}
		golden := "testdata/" + name + ".golden.yaml"
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := readFile(t, golden); want != got.String() {
			t.Errorf("%s differs:\n%s", golden, got.String())
		}
	}
}

// A mistake names object, line and field.
func TestMistakesAreNamed(t *testing.T) {
	text := strings.Replace(readFile(t, "testdata/local-model.yaml"), "replicas: 8", "replicas: 7", 1)
	_, err := makeObjects(parse(t, text), Images{Own: ours})
	if err == nil || !strings.Contains(err.Error(), "LocalModel llama-distributed:1:") ||
		!strings.Contains(err.Error(), "replicas: found 7 workers; expected a multiple of tensorParallelism.size, 4") {
		t.Error(err)
	}
}
