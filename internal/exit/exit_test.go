package exit

import (
	"errors"
	"fmt"
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
