//go:build unix

package envoy

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := Port{Addr: l.Addr().String(), Use: "test"}
	free := Port{Addr: "127.0.0.1:0", Use: "test"}
	good, old := fakeEnvoy(t, "1.40.0"), fakeEnvoy(t, "1.30.0")
	tools := t.TempDir()
	uv := script(t, "#!/bin/sh\necho uv 1.2.3\n")
	if err := os.Symlink(uv, filepath.Join(tools, "uv")); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name    string
		o       InspectOptions
		ok      bool
		install bool
		source  Source
	}{
		{"all well", InspectOptions{Find: FindOptions{Path: good, Getenv: env()}, Ports: []Port{free}}, true, false,
			FromFlag},
		{"port taken", InspectOptions{Find: FindOptions{Path: good, Getenv: env()}, Ports: []Port{free, taken}}, true,
			false, FromFlag},
		{"too many held", InspectOptions{Find: FindOptions{Path: good, Getenv: env()}, Held: 1 << 40,
			Ports: []Port{free}}, false, false, FromFlag},
		{"too old", InspectOptions{Find: FindOptions{Path: old, Getenv: env("PATH", tools)}, Ports: []Port{free}},
			false, false, ""},
		{"nothing, but uv", InspectOptions{
			Find: FindOptions{Getenv: env("PATH", tools, "WINDTUNNEL_CACHE", t.TempDir())}, Ports: []Port{free}}, true,
			true, ""},
		{"nothing at all", InspectOptions{
			Find: FindOptions{Getenv: env("PATH", t.TempDir(), "WINDTUNNEL_CACHE", t.TempDir())}, Ports: []Port{free}},
			false, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Inspect(t.Context(), tc.o)
			for _, p := range f.Ports {
				if (p.Err != nil) != (p.Addr == taken.Addr) {
					t.Errorf("port %s: %v", p.Addr, p.Err)
				}
			}
			if f.OK() != tc.ok || f.WouldInstall != tc.install || f.Envoy.Source != tc.source {
				t.Errorf("OK %v, would install %v, source %q; want %v, %v, %q\n%+v",
					f.OK(), f.WouldInstall, f.Envoy.Source, tc.ok, tc.install, tc.source, f)
			}
		})
	}
	wantKind(t, CheckDescriptors(1<<40, 0), TooFewDescriptors)
	// What HTTP/1.1 cannot hold, HTTP/2 can: the message says so.
	most := int(min(DescriptorLimit(), 1<<40))
	wantKind(t, CheckDescriptors(most, 1), TooFewDescriptors)
	if err := CheckDescriptors(most, 0); most > 512 && err != nil {
		t.Fatal(err)
	}
	if err := CheckDescriptors(0, 2); err != nil {
		t.Error(err)
	}
}
