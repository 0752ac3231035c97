package objects_test

import (
	"os"
	"strings"
	"testing"

	. "github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// Whatever is read, its endpoints can be reached.
func FuzzAdd(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: &a {name: a}\nstatus: {podIP: 1.2.3.4, conditions: " +
		"[*a]}\n---\n"))
	files, err := os.ReadDir("testdata/scripts")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile("testdata/scripts/" + file.Name())
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(data), "----") {
			_, yaml, _ := strings.Cut(part, "\n")
			f.Add([]byte(yaml))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Set{}
		if s.Add("fuzz.yaml", data) != nil {
			return
		}
		new(Ages).Settle(s)
		for _, p := range s.Pools {
			for _, e := range s.Select(p.Namespace, p.Name).Endpoints {
				if e.Address == "" || e.Port == "" {
					t.Errorf("endpoint %+v", e)
				}
			}
		}
	})
}
