package predictor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// Version is the version of XGBoost that fits the trees.
const Version = "3.2.0"

// requirements are XGBoost and its dependencies, with hashes. These versions need Python 3.11.
//
//go:embed requirements.txt
var requirements string

// Library is a Python that can import XGBoost.
type Library struct {
	Python string // path of the interpreter
	Site   string // directory of the packages; "" if the interpreter finds them itself
}

// FindOptions say where to look. The zero value means the machine's usual places.
type FindOptions struct {
	// Getenv replaces os.Getenv. Find reads PATH and WINDTUNNEL_CACHE.
	Getenv func(string) string
	// NoInstall makes Find return an error instead of installing.
	NoInstall bool
	// Report, if not nil, gets a message before an installation, which takes a while.
	Report func(what string)
}

// Find returns a Python that can fit trees: python3 with its own XGBoost 3.2.0, or with the one in windtunnel's
// cache. Find installs it there if necessary (235 MB on disk). Errors say what to do.
func Find(ctx context.Context, o FindOptions) (Library, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	fail := func(err error) (Library, error) {
		return Library{}, exit.Hint(exit.Environment, fmt.Errorf("cannot fit trees: %w", err),
			"latencies are predicted with XGBoost, which needs python3 (3.11 or newer) with pip, or uv, on PATH; or "+
				"name a model that is already trained (predictor.model)")
	}
	var python, tag string
	var err error
	for _, name := range []string{"python3", "python"} {
		path := cachedir.LookPath(o.Getenv("PATH"), name)
		if path == "" {
			continue
		}
		if tag, err = ask(ctx, path, "",
			"import sys; assert sys.version_info >= (3, 11), 'Python %d.%d is older than 3.11' % "+
				"sys.version_info[:2]; print(sys.implementation.cache_tag)"); err == nil {
			python = path
			break
		}
	}
	switch {
	case python == "" && err != nil:
		return fail(err)
	case python == "":
		return fail(errors.New("neither python3 nor python is on PATH"))
	}
	cache, err := cachedir.Dir(o.Getenv)
	if err != nil {
		return fail(err)
	}
	root := filepath.Join(cache, "predictor")
	site := filepath.Join(root, "xgboost-"+Version+"-"+tag)
	if _, err := os.Stat(site); err == nil {
		return Library{python, site}, nil
	}
	if v, err := ask(ctx, python, "", "import xgboost; print(xgboost.__version__)"); err == nil && v == Version {
		return Library{Python: python}, nil
	}
	if o.NoInstall {
		return fail(fmt.Errorf("%s does not exist, and installing is disabled", site))
	}
	if err := install(ctx, python, root, site, o); err != nil {
		return fail(err)
	}
	return Library{python, site}, nil
}

// ask runs a Python program and returns its output without surrounding space.
func ask(ctx context.Context, python, site, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", program)
	cmd.Env = environment(site)
	cmd.WaitDelay = time.Second
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(words.String()), "\n")
		return "", fmt.Errorf("%s: %w: %.300s", python, err, lines[len(lines)-1])
	}
	return strings.TrimSpace(string(out)), nil
}

// environment returns the process's environment. It allows one thread: two threads spend more time waiting for each
// other than one needs, and the result must not depend on their number.
func environment(site string) []string {
	env := append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONUNBUFFERED=1")
	if site != "" {
		env = append(env, "PYTHONPATH="+site)
	}
	return env
}

// install installs the library into the cache.
func install(ctx context.Context, python, root, site string, o FindOptions) error {
	x := cachedir.Install{Root: root, Final: site, Requirements: requirements,
		There: func(context.Context) bool {
			_, err := os.Stat(site)
			return err == nil
		},
		Begins: func() {
			o.Report(fmt.Sprintf("installing XGBoost %s (some 60 MB to download, 235 MB on disk, once) into %s",
				Version, site))
		},
		Installers: func(dir, list string) []cachedir.Installer {
			common := []string{"--quiet", "--target", dir, "--no-deps", "--only-binary", ":all:", "--require-hashes",
				"--requirement", list}
			return []cachedir.Installer{
				{Name: "uv", Program: cachedir.LookPath(o.Getenv("PATH"), "uv"),
					Args: append([]string{"pip", "install", "--python", python}, common...)},
				{Name: python, Program: python,
					Args: append([]string{"-m", "pip", "install", "--no-input", "--disable-pip-version-check"},
						common...)}}
		},
		Take: func(ctx context.Context, dir string) (string, error) {
			v, err := ask(ctx, python, dir, "import xgboost; print(xgboost.__version__)")
			if err == nil && v != Version {
				err = fmt.Errorf("found XGBoost %s; expected %s", v, Version)
			}
			return dir, err
		}}
	return x.Run(ctx)
}
