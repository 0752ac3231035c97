package dropin

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
)

// booleans are flags of vllm serve that take no value and have no effect here. Any other unknown flag takes the next
// argument, unless that argument begins with a dash.
var booleans = strings.Fields(`
	trust-remote-code disable-log-requests disable-log-stats enable-log-requests enable-auto-tool-choice
	enable-lora-bias fully-sharded-loras disable-custom-all-reduce
	enable-eplb enable-dbo async-scheduling disable-sliding-window
	skip-tokenizer-init enable-prompt-embeds disable-cascade-attn disable-hybrid-kv-cache-manager
	enable-server-load-tracking enable-force-include-usage enable-tokenizer-info-endpoint
	disable-fastapi-docs disable-uvicorn-access-log return-tokens-as-token-ids allow-credentials
	enable-ssl-refresh headless multi-step-stream-outputs use-v2-block-manager ray-workers-use-nsight
	enable-mm-embeds enable-log-outputs disable-frontend-multiprocessing force-dummy-tokenizer
	skip-tool-validation dataset-in-memory calculate-kv-scales mm-processor-cache
	data-parallel-hybrid-lb data-parallel-external-lb enable-return-routed-experts
	kv-sharing-fast-prefill show-hidden-metrics-for-version disable-nccl-for-dp-synchronization
	enable-layerwise-nvtx-tracing disable-chunked-mm-input interleave-mm-strings skip-mm-profiling
	language-model-only use-tqdm-on-load enable-log-deltas enable-mfu-metrics kv-cache-metrics
	cudagraph-metrics enable-mm-processor-stats enable-logging-iteration-details
	enable-flashinfer-autotune enable-offline-docs fail-on-environ-validation grpc
	scheduler-reserve-full-isl enable-elastic-ep enable-ep-weight-filter
	data-parallel-multi-port-external-lb disable-log-requests-on-startup
	enable-multimodal-encoder-data-parallel alsologtostderr logtostderr tokens-only add-dir-header
	one-output skip-headers skip-log-headers legacy-stderr-threshold-behavior`)

// defaultPort is vLLM's default.
const defaultPort = 8000

// maxArgs bounds the number of arguments of a command line, and maxArgBytes the size of each.
const (
	maxArgs     = 4096
	maxArgBytes = 1 << 20
)

// Result is a parsed command line.
type Result struct {
	Config
	// Ignored are the accepted flags without an effect, each once.
	Ignored []string
	// Notes describe flags whose effect differs from vLLM's.
	Notes []string
	// RestartOOM keeps a server that does not fit into its memory: it is killed and restarted again and again.
	// Otherwise Fleet returns the error.
	RestartOOM bool

	read        Reader
	budgetGiven bool // --max-num-batched-tokens is given
}

// Reader reads a file that a flag names, up to a number of bytes, and returns the name of its source for error
// messages.
type Reader func(path string, most int64) (text []byte, from string, err error)

func (r *Result) file(path string, most int64) ([]byte, error) {
	text, _, err := r.read(path, most)
	return text, err
}

// disk reads a file of the machine.
func disk(path string, most int64) ([]byte, string, error) {
	raw, err := files.Read(path, most)
	return raw, path, err
}

// Parse parses a command line. Files are the machine's.
func Parse(args []string, env func(string) (string, bool)) (*Result, error) {
	return ParseIn(args, env, disk)
}

// ParseIn parses a command line with flags of vllm serve, SGLang, llm-d-inference-sim, or a mix of them. It skips the
// words "vllm", "serve", "launch render" and "python -m vllm.entrypoints…" at the beginning. env looks environment
// variables up, and read reads the files of --config, --chat-template and --tokenizer.
func ParseIn(args []string, env func(string) (string, bool), read Reader) (*Result, error) {
	r := &Result{Config: Config{Port: -1}, read: read}
	if sglangCommand(args) {
		r.Profile = ProfileSGLang
	}
	if len(args) > maxArgs {
		return nil, fmt.Errorf("%d arguments are more than %d", len(args), maxArgs)
	}
	for _, a := range args {
		if len(a) > maxArgBytes {
			return nil, fmt.Errorf("an argument has more than %d bytes", maxArgBytes)
		}
	}
	if err := r.environment(env); err != nil {
		return nil, err
	}
	p := parser{args: skipCommand(args), r: r}
	if err := p.run(); err != nil {
		return nil, err
	}
	if r.Model == "" {
		if m, ok := env("SIM_MODEL"); ok {
			r.Model = m
		}
	}
	slices.Sort(r.Ignored)
	r.Ignored = slices.Compact(r.Ignored)
	return r, r.fill(p.simFlags)
}

func skipCommand(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "exec" {
		args = args[1:]
	}
	if len(args) > 2 && strings.HasPrefix(args[0], "python") && args[1] == "-m" {
		args = args[3:]
	}
	if len(args) > 0 && (path.Base(args[0]) == "vllm" || path.Base(args[0]) == "sglang") {
		args = args[1:]
	}
	switch {
	case len(args) > 0 && args[0] == "serve":
		args = args[1:]
	case len(args) > 1 && args[0] == "launch" && args[1] == "render":
		args = args[2:]
	}
	return args
}

type parser struct {
	args     []string
	r        *Result
	depth    int
	simFlags bool
}

func (p *parser) run() error {
	var errs []error
	for len(p.args) > 0 {
		arg := p.args[0]
		p.args = p.args[1:]
		switch {
		case arg == "--", arg == "": // from a variable that is not set
		case strings.HasPrefix(arg, "--"):
			errs = append(errs, p.long(arg[2:]))
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			errs = append(errs, p.one(arg[1:]))
		case p.r.Model == "":
			p.r.Model = arg
		default:
			errs = append(errs, fmt.Errorf("%q: expected a flag; the model is %q already", arg, p.r.Model))
		}
	}
	return errors.Join(errs...)
}

func (p *parser) one(name string) error {
	name, value, has := strings.Cut(name, "=")
	if full, ok := short[name]; ok {
		if has {
			full += "=" + value
		}
		return p.long(full)
	}
	p.r.Ignored = append(p.r.Ignored, "-"+name)
	if _, err := strconv.Atoi(strings.TrimLeft(name, "Ov")); !has && (err != nil || name == "") {
		p.value() // -O3 and -v5 contain their values
	}
	return nil
}

// long parses one flag with its value. Like vLLM, it accepts dashes and underscores alike, --no-x for --x=false, and
// --config.key for a key of a JSON flag.
func (p *parser) long(arg string) error {
	name, value, has := strings.Cut(arg, "=")
	name = strings.ReplaceAll(name, "_", "-")
	if name == "config" {
		if !has {
			value, has = p.value()
		}
		if !has {
			return errors.New("--config: expected a file")
		}
		return p.file(value)
	}
	if object, key, dotted := strings.Cut(name, "."); dotted &&
		(object == "kv-transfer-config" || object == "kv-events-config") {
		if !has {
			value, _ = p.value()
		}
		return p.set(object, flags[object], fmt.Sprintf("{%q:%s}", strings.ReplaceAll(key, "-", "_"), jsonValue(value)))
	}
	name = complete(name)
	f, known := flags[name]
	if !known {
		if base, negated := strings.CutPrefix(name, "no-"); negated {
			if f, ok := flags[base]; ok && f.boolean && !has {
				return p.set(base, f, "false")
			}
			if slices.Contains(booleans, base) {
				p.r.Ignored = append(p.r.Ignored, "--"+name)
				return nil
			}
		}
		ignored := "--" + name
		if meant := strictyaml.Slip(name, slices.Sorted(maps.Keys(flags))); meant != "" &&
			!slices.Contains(booleans, name) {
			ignored += " (did you mean --" + meant + "?)"
		}
		p.r.Ignored = append(p.r.Ignored, ignored)
		if !has && !slices.Contains(booleans, name) {
			for _, more := p.value(); more; _, more = p.value() { // some flags take several values
			}
		}
		return nil
	}
	switch {
	case has:
		return p.set(name, f, value)
	case f.boolean:
		if next := p.peek(); next == "true" || next == "false" || next == "True" || next == "False" {
			value, _ = p.value()
			return p.set(name, f, strings.ToLower(value))
		}
		return p.set(name, f, "true")
	}
	value, has = p.value()
	if !has {
		return fmt.Errorf("--%s: expected a value", name)
	}
	errs := []error{p.set(name, f, value)}
	for f.many {
		if value, has = p.value(); !has {
			break
		}
		errs = append(errs, p.set(name, f, value))
	}
	return errors.Join(errs...)
}

// complete returns vLLM's only flag that begins with this name, as argparse completes it. Without exactly one such
// flag, it returns the name itself.
func complete(name string) string {
	if _, known := flags[name]; known || slices.Contains(booleans, name) {
		return name
	}
	var all []string
	offer := func(full string) {
		if strings.HasPrefix(full, name) && full != name {
			all = append(all, full)
		}
	}
	for _, full := range booleans {
		if !slices.Contains(sglangBooleans, full) {
			offer(full)
		}
	}
	for full, f := range flags {
		if f.sim || f.sglang {
			continue
		}
		offer(full)
		if f.boolean {
			offer("no-" + full)
		}
	}
	if len(all) != 1 {
		return name
	}
	return all[0]
}

func (p *parser) set(name string, f flag, value string) error {
	p.simFlags = p.simFlags || f.sim
	if name == "max-num-batched-tokens" || name == "max-num-prefill-tokens" {
		p.r.budgetGiven = true
	}
	if err := f.set(&p.r.Config, value); err != nil {
		return fmt.Errorf("--%s: %w", name, err)
	}
	return nil
}

func (p *parser) peek() string {
	if len(p.args) == 0 {
		return ""
	}
	return p.args[0]
}

// value returns the next argument, unless that is a flag. A negative number is not a flag.
func (p *parser) value() (string, bool) {
	next := p.peek()
	if len(p.args) == 0 {
		return "", false
	}
	if strings.HasPrefix(next, "-") && len(next) > 1 {
		if _, err := strconv.ParseFloat(next, 64); err != nil {
			return "", false
		}
	}
	p.args = p.args[1:]
	return next, true
}

func jsonValue(v string) string {
	switch v {
	case "true", "false", "null":
		return v
	}
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return v
	}
	return strconv.Quote(v)
}

const maxConfigFile = 4 << 20

// file reads a YAML file whose keys are flags, the format of both vLLM and llm-d-inference-sim. The command line's own
// flags override it.
func (p *parser) file(path string) error {
	if p.depth++; p.depth > 8 {
		return fmt.Errorf("--config %s: files name one another", path)
	}
	raw, from, err := p.r.read(path, maxConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	return p.yaml(from, raw)
}

func (p *parser) yaml(path string, raw []byte) error {
	doc, err := strictyaml.Parse(raw, strictyaml.Options{File: path})
	if err != nil {
		return err
	}
	var problems strictyaml.Problems
	for _, pair := range doc.Root().Pairs() {
		for _, value := range values(pair.Value) {
			inner := parser{args: []string{"--" + pair.Name + "=" + value.text}, r: p.r, depth: p.depth}
			err, at := inner.run(), value.Value
			if !errors.As(err, new(strictyaml.Problem)) {
				at = at.Named("") // the error already names the flag
			}
			problems = append(problems, at.ProblemsOf(err)...)
			p.simFlags = p.simFlags || inner.simFlags
		}
	}
	return append(problems, doc.Problems()...).Err()
}

// flagValue is a flag's value and its position in a file.
type flagValue struct {
	strictyaml.Value
	text string
}

// values returns the values of a key: one for each item of a list, and JSON for a mapping.
func values(v strictyaml.Value) (out []flagValue) {
	switch {
	case v.IsList():
		for _, e := range v.List() {
			out = append(out, values(e)...)
		}
		return out
	case v.IsMapping():
		raw, _ := jsonOf(v.Any()) // plain types always marshal
		return []flagValue{{v, raw}}
	}
	return []flagValue{{v, v.Scalar()}}
}
