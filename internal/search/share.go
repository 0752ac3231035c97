package search

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/scenario"
)

// Division says how several processes play one search. The zero Division plays everything, and keeps nothing.
type Division struct {
	// Results is the directory that the processes share, or a sweep's file, empty for none. Runs in it are not played
	// again.
	Results string
	// Share is this process's part.
	Share Share
	// Collect plays nothing and returns the result of the runs in Results.
	Collect bool
}

// Share is part Index, from 0, of Of parts; the zero Share is everything. A sweep plays every Of-th combination. The
// processes of a capacity search look at the same loads, and each plays the runs that no other has begun.
type Share struct{ Index, Of int }

// MaxShares bounds the parts.
const MaxShares = 100_000

// UnmarshalText parses a part, such as 3/64.
func (s *Share) UnmarshalText(text []byte) (err error) {
	index, of, _ := strings.Cut(string(text), "/")
	if s.Index, err = strconv.Atoi(index); err == nil {
		s.Of, err = strconv.Atoi(of)
	}
	if err != nil || s.Of < 1 || s.Of > MaxShares || s.Index < 0 || s.Index >= s.Of {
		return fmt.Errorf("found %q; expected the number of a part, from 0, and how many there are, up to %d, such as "+
			"3/64", text, MaxShares)
	}
	return nil
}

// String returns the form that UnmarshalText parses, "" for everything.
func (s Share) String() string {
	if s.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Of)
}

// file returns the name of a share's file, without its ending.
func (d *Division) file() string {
	name := "rest"
	if d.Share.Of > 0 {
		name = fmt.Sprintf("share-%d-of-%d", d.Share.Index, d.Share.Of)
	}
	return filepath.Join(d.Results, name)
}

// check returns an error for flags that do not fit, and creates the directory of a share.
func (d *Division) check() error {
	switch {
	case d.Results == "" && (d.Share.Of > 0 || d.Collect):
		return exit.Errorf(exit.Usage, "--share and --collect: found no --results; expected the directory that the "+
			"processes share, such as --results results")
	case d.Share.Of > 0 && d.Collect:
		return exit.Errorf(exit.Usage, "--share and --collect: found both; expected --share in the processes that "+
			"play, and --collect in the one that prints")
	case d.Share.Of > 0:
		if err := os.MkdirAll(d.Results, 0o755); err != nil {
			return exit.Errorf(exit.Input, "--results: %w; expected a directory for --share", err)
		}
	}
	return nil
}

// Keys makes hashes of everything that a run depends on.
type Keys struct{ digests map[string][]byte } // of files that runs depend on

// Of returns a hash of windtunnel's version, a scenario's text and files, the changes to it, and more.
func (k *Keys) Of(v *Variant, s *scenario.Scenario, more ...any) (string, error) {
	flags, err := json.Marshal(v.Overrides)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	part := func(b []byte) { fmt.Fprintf(h, "%d:%s;", len(b), b) }
	part([]byte(version.Text()))
	part(v.Text)
	part(flags)
	for _, x := range v.Settings {
		part([]byte(x.String()))
	}
	for _, x := range more {
		part(fmt.Append(nil, x))
	}
	for _, file := range s.Files() {
		sum, err := k.digest(file)
		if err != nil {
			return "", LoadError(err)
		}
		part(sum)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// digest returns the hash of a file. It reads the file, perhaps a long trace, once.
func (k *Keys) digest(file string) ([]byte, error) {
	if sum, known := k.digests[file]; known {
		return sum, nil
	}
	f, err := files.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	if k.digests == nil {
		k.digests = map[string][]byte{}
	}
	k.digests[file] = h.Sum(nil)
	return k.digests[file], nil
}

// played is the result of a run of a capacity search, as processes exchange it.
type played struct {
	Run
	Servers string
	Steps   report.StepError
	Uses    []constraint.Use
}

// head is the first line of a file of a run. The values of each objective follow, 8 bytes each, little-endian.
type head struct {
	Counts      []int // of the values, by objective
	Early, Late uint64
	Unsettled   bool
	Servers     string
	Steps       report.StepError
	Uses        []constraint.Use
}

// MarshalBinary returns the file of a run.
func (p *played) MarshalBinary() ([]byte, error) {
	h := head{Early: math.Float64bits(p.Early), Late: math.Float64bits(p.Late), Unsettled: p.Unsettled,
		Servers: p.Servers, Steps: p.Steps, Uses: p.Uses}
	for _, list := range p.Values {
		h.Counts = append(h.Counts, len(list))
	}
	out, err := json.Marshal(h)
	out = append(out, '\n')
	for _, list := range p.Values {
		for _, v := range list {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	}
	return out, err
}

// UnmarshalBinary reads the file of a run.
func (p *played) UnmarshalBinary(data []byte) error {
	line, data, found := bytes.Cut(data, []byte("\n"))
	var h head
	if err := json.Unmarshal(line, &h); err != nil || !found {
		return errors.New("this is not a run")
	}
	*p = played{Run: Run{Early: math.Float64frombits(h.Early), Late: math.Float64frombits(h.Late),
		Unsettled: h.Unsettled}, Servers: h.Servers, Steps: h.Steps, Uses: h.Uses}
	for _, n := range h.Counts {
		if n < 0 || n > len(data)/8 {
			return errors.New("this run is incomplete")
		}
		list := make([]float64, n)
		for i := range list {
			list[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		p.Values, data = append(p.Values, list), data[8*n:]
	}
	if len(data) > 0 {
		return errors.New("this run has more values than it counts")
	}
	return nil
}

// Store is the directory in which processes that search together exchange runs. Each file appears complete. A process
// that begins a run creates a claim beside it, a file with its share whose time it renews. Each run follows from its
// name, so a run that two processes play by mistake does no harm.
type Store struct {
	Division
	Keys
	stale, beat time.Duration // after which a claim is void, and after which its holder renews it

	mu   sync.Mutex
	held map[string]bool // claims of this process
	seen map[string]claim
}

// claim is the claim of another process: its time on the volume, and when this process saw it first, by its own clock.
type claim struct{ renewed, seen time.Time }

// A claim outlives some lost renewals, and attributes that a network file system caches.
const staleClaim, renewClaim = time.Minute, 5 * time.Second

// ErrAbsent is the cause of a missing result where nothing is to be played.
var ErrAbsent = errors.New("it was not played")

// Store returns the division's directory, which Open opens.
func (d *Division) Store() *Store {
	return &Store{Division: *d, stale: staleClaim, beat: renewClaim, held: map[string]bool{}, seen: map[string]claim{}}
}

// Open drops the claims that an earlier process with this share has left, and renews the claims of this one until
// stop.
func (s *Store) Open() (stop func(), err error) {
	if s.Results == "" || s.Collect {
		return func() {}, nil
	}
	if err := os.MkdirAll(s.Results, 0o755); err != nil {
		return nil, exit.Errorf(exit.Input, "--results: %w; expected a directory", err)
	}
	old, err := filepath.Glob(filepath.Join(s.Results, "*.claim"))
	for _, path := range old {
		if holder, err := files.Read(path, 64); err == nil && string(holder) == s.Share.String() {
			_ = os.Remove(path)
		}
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case now := <-time.After(s.beat):
				s.mu.Lock()
				for path := range s.held {
					_ = os.Chtimes(path, now, now)
				}
				s.mu.Unlock()
			}
		}
	}()
	return func() { close(ended) }, err
}

// Stored is the result of a run as processes exchange it.
type Stored interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Run reads the run of this name into a result, and lets play set the result if no process has played the run. It
// returns false while another process plays it.
func (s *Store) Run(name string, into Stored, play func() error) (done bool, err error) {
	if s.Results == "" {
		err = play()
		return err == nil, err
	}
	path := filepath.Join(s.Results, "run-"+name)
	data, err := files.Read(path, maxResults)
	if err == nil {
		if err = into.UnmarshalBinary(data); err != nil {
			err = exit.Errorf(exit.Input, "--results: %s: %w; expected a file that windtunnel has written: delete it",
				path, err)
		}
		return err == nil, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, exit.Errorf(exit.Input, "--results: %w", err)
	}
	if s.Collect {
		return false, ErrAbsent
	}
	if claimed, err := s.claim(path + ".claim"); !claimed || err != nil {
		return false, exit.With(exit.Input, err)
	}
	defer s.release(path + ".claim")
	if err = play(); err != nil {
		return false, err
	}
	if data, err = into.MarshalBinary(); err == nil {
		err = exit.With(exit.Input, files.Replace(path, data))
	}
	return err == nil, err
}

// claim reports whether this process has the claim now.
func (s *Store) claim(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(s.Share.String())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[path] = true
		return true, errors.Join(err, f.Close())
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil { // its holder has just ended
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known := s.seen[path]; !known || !c.renewed.Equal(info.ModTime()) {
		s.seen[path] = claim{info.ModTime(), time.Now()}
	} else if time.Since(c.seen) > s.stale { // its holder was killed
		delete(s.seen, path)
		return false, os.Remove(path)
	}
	return false, nil
}

func (s *Store) release(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, path)
	_ = os.Remove(path)
}

// Each calls do for 0 to n-1 on all cores. It then waits until do has returned true for each: it asks again for the
// runs that other processes play.
func (s *Store) Each(ctx context.Context, n int, do func(i int) (done bool, err error)) error {
	done := make([]bool, n)
	if err := Each(n, func(i int) (err error) {
		done[i], err = do(i)
		return err
	}); err != nil {
		return err
	}
	wait := 10 * time.Millisecond
	for i := 0; i < n; {
		if done[i] {
			i++
			continue
		}
		select {
		case <-ctx.Done():
			return exit.Reported(exit.Interrupted, ctx.Err())
		case <-time.After(wait):
		}
		var err error
		if done[i], err = do(i); err != nil {
			return err
		}
		if wait = min(2*wait, time.Second); done[i] {
			wait = 10 * time.Millisecond
		}
	}
	return nil
}

// rows writes rows as a Parquet file.
func rows(path string, columns []table.Column, write func(table.Writer)) error {
	var b bytes.Buffer
	w := table.Parquet(&b, columns)
	write(w)
	if err := w.Close(); err != nil {
		return err
	}
	return exit.With(exit.Input, files.Replace(path, b.Bytes()))
}

// measureCells returns the cells of measureColumns.
func measureCells(m *report.Measured) []table.Value {
	number := func(v *float64) table.Value {
		if v == nil {
			return table.Value{}
		}
		return table.Number(*v)
	}
	return []table.Value{table.Of(m.Measure), table.Of(string(m.Unit)), number(&m.Value), number(m.Low), number(m.High),
		table.Of(m.Why)}
}

// measureColumns are the columns of a measure.
var measureColumns = []table.Column{{Name: "measure"}, {Name: "unit"},
	{Name: "value", Kind: table.Decimal, Digits: table.Exact}, {Name: "low", Kind: table.Decimal, Digits: table.Exact},
	{Name: "high", Kind: table.Decimal, Digits: table.Exact}, {Name: "why"}}
