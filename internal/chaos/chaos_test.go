package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

func base(t *testing.T, file string) *Base {
	t.Helper()
	v, err := search.ReadVariant(nil, file, nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBase(context.Background(), v, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// WINDTUNNEL_CHAOS is how many new seeds are dealt to the examples.
func TestSeedsOverExamples(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("WINDTUNNEL_CHAOS"))
	if n == 0 {
		t.Skip("make chaos plays them")
	}
	list, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range list {
		if filepath.Base(file) == "own-model-servers.yaml" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			b := base(t, file)
			r, err := b.Run(context.Background(), uint64(1+i*n), (n-i+len(list)-1)/len(list), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Failures) > 0 {
				t.Fail()
			}
			if err := r.Write(t.Output()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
