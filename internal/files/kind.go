package files

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"regexp"
	"strings"
)

// headBytes is how much of a file KindOf reads, in bytes. The first line of a recording has the picker's configuration.
const headBytes = 64 << 10

// Kind describes a file by how it begins.
type Kind struct {
	// Is names it, with an article; empty for an unknown kind.
	Is string
	// Use says which commands and fields take it.
	Use string
	// Trace is the format of a trace, as in a scenario's workload.trace.format.
	Trace string
}

// The kinds whose readers ask for them.
const (
	Scenario  = "a windtunnel scenario"
	Picker    = "an EndpointPickerConfig"
	Recording = "a recording"
	Objects   = "Kubernetes manifests"
	Metrics   = "an answer of Prometheus"
)

// columns are words in the first line of a trace, and its format.
var columns = []struct{ word, format string }{{`"chat_id"`, "bailian"}, {`"input_length"`, "mooncake"},
	{`"input_tokens"`, "mooncake"}, {"ContextTokens", "azure"}, {"Request tokens", "burstgpt"},
	{`"conversations"`, "sharegpt"}, {`"resourceSpans"`, "otlp"}, {`"start_time"`, "envoy"}}

var (
	recorded = regexp.MustCompile(`^\{.*("log":\{|"hop":"|"snapshot":)`)
	answered = regexp.MustCompile(`^\{\s*"status"\s*:\s*"success"\s*,\s*"data"\s*:`)
	object   = regexp.MustCompile(`(?m)^(?:\{.*)?"?kind"?\s*:\s*"?(\w+)`)
)

// KindOf returns the kind of a file that begins with head.
func KindOf(head []byte) Kind {
	if z, err := gzip.NewReader(bytes.NewReader(head)); err == nil {
		text, _ := io.ReadAll(io.LimitReader(z, headBytes)) // head may be cut
		return KindOf(text)
	}
	text := strings.TrimLeft(string(head), "\ufeff \t\r\n")
	line, _, _ := strings.Cut(text, "\n")
	if recorded.MatchString(line) {
		return Kind{Is: Recording, Use: "windtunnel replay plays it, and explain, compare and trace read it"}
	}
	if answered.MatchString(text) {
		return Kind{Is: Metrics, Use: "windtunnel scenario import reads it"}
	}
	if strings.HasPrefix(line, "windtunnel outcomes ") {
		return Kind{Is: "a file of --outcomes", Use: "windtunnel compare reads it"}
	}
	kind := object.FindStringSubmatch(text)
	switch {
	case kind == nil:
	case kind[1] == "Scenario":
		return Kind{Is: Scenario, Use: "windtunnel run and sim play it"}
	case kind[1] == "EndpointPickerConfig":
		return Kind{Is: Picker, Use: "--epp-config of run, sim and capacity takes it, and the field epp.config of a " +
			"scenario's pool"}
	case strings.Contains(text, "apiVersion") && !strings.Contains(text, "windtunnel/"):
		return Kind{Is: Objects, Use: "windtunnel up -f plays them, windtunnel manifests check checks them, and the " +
			"field manifests of a scenario takes them"}
	}
	for _, c := range columns {
		if strings.Contains(line, c.word) || strings.HasPrefix(line, "[") && strings.Contains(text, c.word) {
			return Kind{Is: "a trace of requests", Trace: c.format, Use: "--trace of run, sim and capacity takes it, " +
				"and the field workload.trace.file of a scenario"}
		}
	}
	return Kind{}
}

// KindOfPath is KindOfFile, and knows a directory.
func KindOfPath(path string) Kind {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return Kind{Is: "a directory", Use: "windtunnel up -f plays the Kubernetes manifests in one"}
	}
	return KindOfFile(path)
}

// KindOfFile is KindOf for the beginning of a regular file; it is zero for any other.
func KindOfFile(path string) Kind {
	f, err := Open(path)
	if err != nil {
		return Kind{}
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return Kind{} // its content can be read once
	}
	head, _ := io.ReadAll(io.LimitReader(f, headBytes))
	return KindOf(head)
}
