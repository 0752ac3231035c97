package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/version"
)

// kept are the runs in the file of Options.Resume: a line that names the search, and a line for each run. A search that
// finds its runs there does the same as one that plays them.
type kept struct {
	had map[string]*outcome

	mu sync.Mutex
	f  *os.File
}

// keptRun is a line of the file.
type keptRun struct {
	Search string   `json:"search,omitempty"` // a hash of everything that all runs depend on, in the first line
	Run    string   `json:"run,omitempty"`
	Played *outcome `json:"played,omitempty"`
}

// mostKept bounds the file, in bytes.
const mostKept = 1 << 30

// openKept reads the file, and opens it for appending. It drops an incomplete last line.
func openKept(o *Options, x *space) (*kept, error) {
	k := &kept{had: map[string]*outcome{}}
	if o.Resume == "" {
		return k, nil
	}
	hash, err := digest(o, x)
	if err != nil {
		return nil, err
	}
	data, err := files.Read(o.Resume, mostKept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Errorf(exit.Input, "--resume: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	for i, line := range bytes.Split(data[:whole], []byte("\n")) {
		var r keptRun
		switch err := json.Unmarshal(line, &r); {
		case len(line) == 0:
		case i == 0 && err == nil && r.Search != "" && r.Search != hash:
			return nil, exit.Errorf(exit.Usage, "--resume %s: the file is of another search; expected the same "+
				"scenarios, fields that vary, objectives and limits, and the same windtunnel, or a new file", o.Resume)
		case err != nil || i == 0 && r.Search == "" || i > 0 && r.Played == nil:
			return nil, exit.Errorf(exit.Input, "--resume %s:%d: this is no run of a search; expected a file of "+
				"windtunnel tune --resume, or a new file", o.Resume, i+1)
		case i > 0:
			k.had[r.Run] = r.Played
		}
	}
	if whole == 0 && len(data) > 0 {
		return nil, exit.Errorf(exit.Input, "--resume %s:1: this is no run of a search; expected a file of windtunnel "+
			"tune --resume, or a new file", o.Resume)
	}
	if k.f, err = os.OpenFile(o.Resume, os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		if err = k.f.Truncate(int64(whole)); err == nil {
			_, err = k.f.Seek(0, io.SeekEnd)
		}
	}
	if err == nil && whole == 0 {
		err = k.write(keptRun{Search: hash})
	}
	return k, exit.With(exit.Input, err)
}

// digest returns a hash of everything that all runs of a search depend on.
func digest(o *Options, x *space) (string, error) {
	h := sha256.New()
	part := func(text any) { fmt.Fprintf(h, "%q;", fmt.Sprint(text)) }
	part(version.Text())
	for i := range x.variants {
		v := &x.variants[i]
		over, err := json.Marshal(v.Overrides)
		if err != nil {
			return "", err
		}
		part(v.Text)
		part(v.Settings)
		part(over)
		for _, name := range x.scenarios[i].Files() {
			if files.Same(name, o.Resume) {
				return "", exit.Errorf(exit.Usage, "--resume %s: this is a file that the search reads; choose another",
					o.Resume)
			}
			f, err := files.Open(name)
			if err != nil {
				return "", exit.With(exit.Input, err)
			}
			_, err = io.Copy(h, f)
			if err := errors.Join(err, f.Close()); err != nil {
				return "", exit.With(exit.Input, err)
			}
		}
	}
	for i := range x.knobs {
		part(x.knobs[i].Name)
	}
	for _, list := range [][]string{o.Objectives, o.Keep, o.SLO, {o.Combine}} {
		part(slices.Clone(list))
	}
	part(o.HoldOut)
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// key names a run in the file.
func (k *kept) key(which int, j *job) string {
	return fmt.Sprintf("%d %v %d %v %q", which, j.length, j.seed, j.factor, j.values)
}

// add keeps a run.
func (k *kept) add(key string, x *outcome) error {
	if k.f == nil {
		return nil
	}
	return exit.With(exit.Environment, k.write(keptRun{Run: key, Played: x}))
}

func (k *kept) write(r keptRun) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err = k.f.Write(append(line, '\n'))
	return err
}

func (k *kept) close() {
	if k.f != nil {
		_ = k.f.Close()
	}
}
