package mirror

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The router finds the base model of an adapter in its namespace's ConfigMaps, and refuses an unusable plug-in.
func TestBodyRouter(t *testing.T) {
	dir := t.TempDir()
	const text = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"llama","namespace":"llm","labels":` +
		`{"inference.networking.k8s.io/bbr-managed":"true"}},"data":{"baseModel":"llama","adapters":"- food-review\n"}}`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := BodyRouter{Namespace: "llm", Plugin: []string{
		`body-field-to-header:model:{"fieldName": "model", "headerName": "X-Gateway-Model-Name"}`,
		"base-model-to-header:base"}}
	r, err := c.router(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found, ok := r.Router.Find("food-review"); !ok || found.Base != "llama" || r.Router.Base == "" ||
		len(r.Router.Fields) != 1 {
		t.Errorf("%+v, %v: %+v", found, ok, r.Router)
	}
	c.Plugin = []string{`body-field-to-header:model:{"fieldName": ""}`}
	if _, err := c.router(dir); err == nil || !strings.Contains(err.Error(), `fieldName ""`) {
		t.Error(err)
	}
}
