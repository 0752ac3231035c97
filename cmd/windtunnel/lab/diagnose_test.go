package lab

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/lab"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report/diagnosis"
)

// unseen are labs whose cause neither the events of a run nor the manifests show.
var unseen = map[string]string{"kvmanager-memory": "only a cluster's metrics have the memory of a container"}

// In each lab whose traffic goes through a real stack, diagnose names the cause by the events of a run and by what
// windtunnel manifests check notes, three times.
func TestDiagnoseLive(t *testing.T) {
	if !nightly.On() {
		t.Skip("make test-nightly plays each lab three times with a real Envoy")
	}
	labs, err := lab.All()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range labs {
		if l.Play != "live" || unseen[l.Name] != "" {
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				d := diagnosed(t, l, netip.AddrFrom4([4]byte{127, 95, byte(i), 1}))
				if d.Leaf(diagnose.Leaf(l.Leaf)) == nil {
					t.Errorf("found %+v; expected %s", d, l.Leaf)
				}
			}
		})
	}
}

// diagnosed plays a lab's traffic through its stack, and walks the trees.
func diagnosed(t *testing.T, l *lab.Lab, host netip.Addr) *diagnose.Diagnosis {
	t.Helper()
	dir := lab.Dir(t.TempDir())
	texts, err := l.Files(nil)
	if err == nil {
		err = dir.Fill(texts)
	}
	if err == nil {
		err = os.WriteFile(dir.Scenario(), []byte(l.Traffic), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	clock := func() machine.Time { return machine.FromDuration(time.Since(began)) }
	r, err := diagnosis.Start(lab.Quietly(s, clock))
	if err != nil {
		t.Fatal(err)
	}
	o := optionsOf(console.New())
	o.Recorder, o.Origin, o.Host, o.Dir = r, began, host, filepath.Join(string(dir), "run")
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if o.Objects, err = up.Load([]string{dir.Manifests()}, nil); err != nil {
		t.Fatal(err)
	}
	var notes []diagnose.Complaint
	dry, _ := up.Dry(o.Objects, optionsOf(console.New()))
	for _, text := range dry.Program.Notes {
		notes = append(notes, diagnose.Complaint{Text: text})
	}
	u, err := up.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	at := lab.State{Addresses: u.Addresses()}
	before, err := l.Values(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Send(context.Background(), s, u.Addresses(), r, clock); err != nil {
		t.Fatal(err)
	}
	counted, err := l.Judge(context.Background(), at, before)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := u.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	f, _, err := r.Facts(false)
	if err != nil {
		t.Fatal(err)
	}
	f.Complaints = append(f.Complaints, notes...)
	for _, e := range counted {
		if !e.OK {
			f.Symptoms = append(f.Symptoms, e.What)
		}
	}
	return diagnose.Of(f)
}
