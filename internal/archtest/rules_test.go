// Package archtest checks the repository's rules: which package may import which, what the core may not use, and what
// packages and files must or must not contain. Each rule and each exception has a reason, which the failing test
// prints.
//
// This file has the rules as data. The tests beside it check the source against them.
package archtest

import "strings"

// Module is the prefix of all import paths inside the repository.
const Module = "github.com/windtunnel/windtunnel/"

// Layer is a part of the tree, with the parts of the repository that it may import.
type Layer struct {
	// Dir is a directory. The layer has everything below it.
	Dir string
	// May lists the directories, other than Dir, that the layer may import.
	May []string
	// Siblings allows packages inside Dir to import each other.
	Siblings bool
	Reason   string
}

// Layers are ordered from the most specific to the most general. A package belongs to the first layer that contains
// it.
var Layers = []Layer{
	{"cmd", []string{"core", "live", "virtual", "scenario", "report", "web", "internal/cachedir", "internal/exit",
		"internal/chaos", "internal/experiment", "internal/files", "internal/gc", "internal/lab", "internal/packed",
		"internal/pause",
		"internal/rundir", "internal/search", "internal/silicon", "internal/tune", "internal/version",
		"internal/watch"}, true,
		"the command is the top layer: it assembles the parts, and only a user's own main imports it"},
	{"examples", []string{"cmd", "extend", "core"}, false, "an example uses only public packages"},
	{"live/stack", []string{"core", "live", "scenario", "report", "internal/cachedir", "internal/child",
		"internal/exit", "internal/files", "internal/pause", "internal/rundir", "internal/tlsfiles", "internal/watch"},
		false,
		"the stack starts the parts of a live run, so only it knows them all; virtual time is the other driver and " +
			"no room"},
	{"live/up", []string{"core", "live", "internal/exit", "internal/files", "internal/manifests", "internal/pause",
		"internal/tlsfiles", "internal/watch"}, false,
		"up starts the parts for manifests, as the stack does for a scenario, so it knows all parts but the stack"},
	{"live/cluster", []string{"core", "live/bbr", "live/drive", "live/envoy", "live/epp", "live/kvmanager",
		"live/predictor", "live/serve", "live/sidecar", "internal/files"}, false,
		"the processes that scenarios and manifests both start: pods, sidecars, predictors, pickers, the gateway"},
	{"live/modelserver", []string{"live/drive", "live/kvevents", "live/serve", "core", "internal/files",
		"internal/pause", "internal/tlsfiles"}, true,
		"a model server's own packages know each other, and no other part"},
	// live/kvevents is the wire format of KV events (ZMQ frames), live/extproc that of ext_proc, live/serve the code
	// of everything that listens, and live/drive drives every machine. None of them is a part that could be replaced.
	{"live", []string{"live/drive", "live/extproc", "live/kvevents", "live/serve", "core", "scenario", "report",
		"internal/cachedir",
		"internal/child", "internal/exit", "internal/files", "internal/pause", "internal/punctual", "internal/tlsfiles",
		"internal/watch"}, false,
		"each live part can be replaced by a real one, so it must not know the others: they only share a wire format"},
	{"virtual", []string{"core", "scenario", "report", "internal/exit"}, true,
		"live and virtual drive the same core; one that imports the other would hide what the core lacks"},
	{"web", []string{"core", "scenario", "report", "internal/exit", "internal/packed"}, true,
		"the page reads the stream of events; it must show a recording as well as a run"},
	{"bench", []string{"core", "live", "virtual", "scenario", "report", "internal/exit", "internal/gc"}, true,
		"benchmarks measure the parts from outside, as the command does"},
	{"report", []string{"core", "internal/exit", "internal/files"}, true, "a report reads events from any source"},
	{"scenario", []string{"core", "internal/exit", "internal/files", "internal/manifests"}, true,
		"both drivers read scenarios, so a scenario knows neither"},
	{"extend", []string{"core"}, false,
		"the documents' plug-in interfaces take a context, which the core does without"},
	{"core", nil, true, "the core decides and depends on nothing above it"},
	{"internal/contract", []string{"core"}, false, "plays random messages to every machine of the core"},
	{"internal/parity", []string{"core", "live/epp"}, false,
		"plays the real picker's recorded decisions against the core's, also through its gRPC port"},
	{"internal/chromium", []string{"internal/cachedir"}, false,
		"tests keep the browser that they fetch where windtunnel keeps its Envoy"},
	{"internal/tlsfiles", []string{"internal/files"}, false,
		"certificates are files that a user names, read as all of them are"},
	{"internal/manifests", []string{"core", "internal/files"}, false,
		"manifests are files that a user names, read as all of them are"},
	{"internal/search", []string{"core", "virtual", "scenario", "report", "internal/exit", "internal/files",
		"internal/gc", "internal/silicon", "internal/version"}, false,
		"commands that decide play scenarios many times: this package is those commands without a command line"},
	{"internal/tune", []string{"core", "scenario", "report", "internal/exit", "internal/files", "internal/search",
		"internal/version"}, false,
		"a search over configurations, with the runs of the commands that decide"},
	{"internal/experiment", []string{"internal/cachedir", "internal/search"}, false,
		"plays on all cores, as searches do, also published traces in the cache"},
	{"internal/chaos/wall", []string{"core", "live", "scenario", "internal/chaos", "internal/pause",
		"internal/search"}, false,
		"plays chaos in wall time: the only package that knows chaos and the stack"},
	{"internal/chaos", []string{"core", "virtual", "scenario", "internal/exit", "internal/search"}, false,
		"plays scenarios with random faults, as the commands that decide play them without"},
	{"internal/lab", []string{"core", "live/client", "live/up", "virtual", "scenario", "report", "internal/files",
		"internal/packed", "internal/pause", "internal/rundir", "internal/watch"}, false,
		"plays a lab's traffic through the stack of its manifests, or in virtual time"},
	{"internal/silicon", []string{"core"}, false,
		"holds predicted times against those that benchmarks measured, which are files of a user"},
	{"scripts", nil, false, "programs for the Makefile, which do not depend on windtunnel"},
	{"internal", nil, false, "small packages that any package may use"},
	{".", []string{"internal/packed"}, false, "embeds files of the repository"},
}

// ImportExceptions allow single imports, each with a reason. The key is "importer imported", as directories.
var ImportExceptions = map[string]string{}

// TestImportExceptions are exceptions for test files.
var TestImportExceptions = map[string]string{
	"web virtual":               "pages are tested on runs, and those in virtual time take no time",
	"live/stack internal/chaos": "incidents in wall time are held against the invariants of chaos",
	"live/stack virtual": "the test that holds a live record against a virtual one needs both; " +
		"no code does",
}

// TestHelpers are packages that only tests may import.
var TestHelpers = map[string]string{
	"internal/chromium":   "pages are tested in a browser",
	"internal/gate":       "benchmarks have limits to keep",
	"internal/eventually": "tests of all packages wait for conditions",
	"internal/fakebin":    "tests of all packages write programs that stand in for real ones",
	"internal/freeport":   "tests of all packages choose ports",
	"internal/nightly":    "tests of all packages run fewer cases in make test",
}

// CoreForbidden are standard packages that the core may not import, with everything below them.
var CoreForbidden = map[string]string{
	"context":     "cancelling is the driver's task; a machine gets a message",
	"crypto/rand": "random values are keyed (core/machine.Draw), or a run cannot be repeated",
	"io/ioutil":   "files belong to the drivers",
	"log":         "what happened is an event of core/record or an effect; logs belong to the drivers",
	"math/rand":   "random values are keyed (core/machine.Draw), or one more draw changes all others",
	"net":         "sockets belong to live/",
	"os":          "files, environment and processes belong to the drivers",
	"runtime":     "what a machine does must not depend on the process around it",
	"sync":        "one caller uses a machine at a time; its driver brings the lock",
	"syscall":     "the core runs on no system",
	"unsafe":      "decisions must not depend on how memory lies",
}

// CoreAllowed are pure packages below forbidden ones.
var CoreAllowed = map[string]string{
	"net/textproto": "reads header lines from memory",
	"net/url":       "reads and writes text",
	"net/netip":     "addresses as values",
}

// CorePackageExceptions allow one package of the core one import. The key is "package import".
var CorePackageExceptions = map[string]string{
	"core/modelserver/latency sync": "sync.OnceValue reads the embedded tables once; no lock is held while deciding",
	"core/modelserver/latency/measured sync": "sync.OnceValue reads the embedded table once; no lock is held " +
		"while deciding",
	"core/kv/kvindex sync/atomic": "kvindex.View looks the index up without a lock while its owner takes " +
		"events; the owner needs none either",
	"core/wire/metrics unsafe": "names in a metrics page are looked up without copying them; the view does " +
		"not outlive the page",
	"core/modelserver/vllmgrpc sync":   "generated: the messages' descriptors are made once",
	"core/modelserver/vllmgrpc unsafe": "generated: the messages' descriptors are a constant string",
	"core/epp/picker/parse unsafe": "token ids are hashed in place on little-endian machines, and copied " +
		"on others; bodies are read without copying them",
}

// CoreClock are the functions of package time that read a clock or wait for it. Durations and their formatting are
// allowed.
var CoreClock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// CoreModules are the third-party modules that the core may import, by prefix.
var CoreModules = map[string]string{
	"github.com/hashicorp/golang-lru/v2/simplelru": "an LRU without lock or clock, the one of the ecosystem's indexer",
	"cel.dev/cel-go": "expressions in an EndpointPickerConfig, compiled and " +
		"evaluated in memory",
	"github.com/expr-lang/expr": "formulas over an autoscaler's triggers, compiled and " +
		"evaluated in memory",
	"github.com/prometheus/prometheus/model/labels":  "the labels that a query selects by",
	"github.com/prometheus/prometheus/promql/parser": "reads PromQL, which core/scaling/autoscaler/promql evaluates",
	"github.com/nikolalohinski/gonja/v2": "Jinja, in which chat templates are written; templates reach " +
		"no files, and nothing random",
	"mvdan.cc/sh/v3":                                "reads a shell's scripts; nothing runs, and no file is read",
	"golang.org/x/text/unicode/norm":                "Unicode normal forms, which tokenizers begin with",
	"github.com/tidwall/gjson":                      "fields of a request body in memory",
	"go.yaml.in/yaml/v3":                            "reads configuration from memory, with line numbers",
	"github.com/cespare/xxhash/v2":                  "the block hash of the ecosystem",
	"google.golang.org/protobuf/encoding/protowire": "reads and writes protobuf's bare wire format in memory",
	"google.golang.org/protobuf/proto":              "reads and writes the messages of vLLM's gRPC service in memory",
	"google.golang.org/protobuf/reflect":            "describes generated messages",
	"google.golang.org/protobuf/runtime":            "the base of generated messages",
}

// OnlyInCommand are functions that end the process or write to its standard output. Only cmd may call them. Keys are
// "package.Function".
var OnlyInCommand = map[string]string{
	"os.Exit":     "only main ends the process, with a documented code",
	"log.Fatal":   "only main ends the process, with a documented code",
	"log.Fatalf":  "only main ends the process, with a documented code",
	"fmt.Print":   "standard output belongs to the command; other packages get a writer",
	"fmt.Printf":  "standard output belongs to the command; other packages get a writer",
	"fmt.Println": "standard output belongs to the command; other packages get a writer",
}

// ForbiddenWords may appear in no file of the repository. They are split here, so that this file does not contain
// them.
var ForbiddenWords = map[string]string{
	"TO" + "DO":            "do it, or open an issue",
	"FIX" + "ME":           "do it, or open an issue",
	"XX" + "X":             "do it, or open an issue",
	"HA" + "CK":            "say what it does and why it must",
	"/work" + "/":          "a path on one developer's machine",
	"/ro" + "ot/":          "a path on one developer's machine",
	"DO NOT " + "SUBMIT":   "it was",
	"not " + "implemented": "do it, or leave it out until it is",
}

// WordExceptions are files that need a forbidden word. The key is "file word", with * at the end of the file for
// everything below it.
var WordExceptions = map[string]string{
	"web/third_party/* " + "TO" + "DO": "somebody else's, unchanged",
	"live/modelserver/vllmservice/vllm_engine_grpc.pb.go " + "not " +
		"implemented": "generated: what gRPC's own stubs answer",
}

// PackageLines is the largest number of lines of a package, without tests and generated files.
const PackageLines = 6000

// Skipped are directories that are not part of the source.
var Skipped = []string{".git", ".cache", "bin", "node_modules"}

// OtherModules are directories with a go.mod of their own.
var OtherModules = []string{"kubernetes", "scripts/site", "test/chart", "test/conformance", "test/observe"}

// Drivers are the packages that act and do not decide.
var Drivers = []string{"live", "virtual"}

// Decision is a family of string constants of the core that a driver may pass on but not name.
type Decision struct {
	Kind string
	// Dir is the package of the constants, Type their type, Prefix the prefix of their names. Empty means any.
	Dir, Type, Prefix string
}

// Holds reports whether a constant belongs to the family.
func (d *Decision) Holds(dir, name, typ string) bool {
	return (d.Dir == "" || d.Dir == dir) && (d.Type == "" || d.Type == typ) && strings.HasPrefix(name, d.Prefix)
}

// Decisions are these families. HTTP and gRPC status codes are another one, which the test knows.
var Decisions = []Decision{
	{"outcome", "core/record", "Outcome", ""},
	{"finish reason", "", "FinishReason", ""},
	{"drop reason", "core/epp/picker/flowcontrol", "", "Reason"},
}

// DriverExceptions are files of drivers that may name one kind of decision. The key is "file kind".
var DriverExceptions = map[string]string{
	"live/epp/processor.go status": "a panic of a plug-in, and gRPC's code for a stream that " +
		"ended: the core handles neither",
	"live/serve/refuse.go status": "access to operators' pages, and pages that cannot be built: " +
		"virtual time has no such pages",
	"live/dynamo/server.go status": "the Dynamo frontend's HTTP: wrong paths, methods, bodies, " +
		"and no worker; virtual time asks it without HTTP",
	"live/kvmanager/http.go status": "the manager's HTTP: wrong paths, methods, bodies; virtual " +
		"time asks it without HTTP",
	"live/predictor/http.go status": "the latency predictor's HTTP: wrong bodies and paths, models that are not " +
		"there yet; virtual time asks it without HTTP",
	"live/modelserver/grpcapi/grpcapi.go status": "gRPC's codes for calls that are no requests for tokens, " +
		"which virtual time does not make",
	"live/modelserver/grpcapi/stream.go status": "likewise",
	"live/modelserver/guard.go status":          "API keys and access control, before the body is read",
	"live/sidecar/handler.go status": "a body that is too long, too slow or not JSON, " +
		"before the core gets it",
}

// LargeFormats are structs of more than 30 fields that are one documented format. The key is "directory.Type".
var LargeFormats = map[string]string{
	"cmd/windtunnel/parts.EPP":       "the flags of the endpoint picker",
	"cmd/windtunnel/parts.Sidecar":   "the flags of the sidecar",
	"core/wire/openai.Sampling":      "the sampling parameters of a request, as vLLM reads them",
	"live/modelserver/dropin.Config": "the flags of the model server that windtunnel replaces",
	"report.Summary":                 "the JSON of a run's summary",
	"scenario.ModelServer":           "the YAML of a pool's modelServer",
	"scenario.Workload":              "the YAML of a scenario's workload",
}
