package exit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestCodes(t *testing.T) {
	base := errors.New("no envoy")
	hinted := Hint(Environment, base, "install it")
	outer := With(Usage, fmt.Errorf("run: %w", hinted))
	for _, c := range []struct {
		err  error
		code Code
		hint string
	}{
		{nil, OK, ""}, {base, Broken, ""}, {hinted, Environment, "install it"}, {outer, Usage, "install it"},
		{With(Input, nil), OK, ""}, {Hint(Input, nil, "x"), OK, ""},
	} {
		if Of(c.err) != c.code || HintOf(c.err) != c.hint {
			t.Errorf("%v: got %d %q, want %d %q", c.err, Of(c.err), HintOf(c.err), c.code, c.hint)
		}
	}
	_, missing := os.ReadFile(filepath.Join(t.TempDir(), "missing"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken := net.Listen("tcp", l.Addr().String())
	for _, c := range []struct {
		err  error
		code Code
	}{
		{nil, OK}, {base, Usage}, {fmt.Errorf("--flag: %w", missing), Input},
		{fmt.Errorf("metrics: %w", taken), Environment}, {With(Broken, missing), Broken},
	} {
		if got := Of(ByCause(Usage, c.err)); got != c.code {
			t.Errorf("%v: got %d, want %d", c.err, got, c.code)
		}
	}
	if !errors.Is(outer, base) || outer.Error() != "run: no envoy" {
		t.Errorf("the error itself is lost: %v", outer)
	}
	seen := map[Code]bool{}
	for _, d := range Codes() {
		if seen[d.Code] {
			t.Errorf("%d is listed twice", d.Code)
		}
		seen[d.Code] = true
	}
}
