// Package commandline translates the command line of a model server's container in a manifest to the fields of a
// scenario's modelServer.
package commandline

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// serverFlags maps a model server's flags to a scenario's fields.
var serverFlags = map[string]string{
	"max-num-seqs": "maxNumSeqs", "max-num-batched-tokens": "maxNumBatchedTokens", "max-model-len": "maxModelLen",
	"enable-chunked-prefill": "chunkedPrefill", "long-prefill-token-threshold": "longPrefillTokenThreshold",
	"max-num-partial-prefills":  "maxNumPartialPrefills",
	"max-long-partial-prefills": "maxLongPartialPrefills", "scheduling-policy": "schedulingPolicy",
	"enable-prefix-caching": "prefixCaching",
	"block-size":            "blockSize", "num-gpu-blocks-override": "numGPUBlocks", "swap-space": "swapSpace",
	"gpu-memory-utilization": "gpuMemoryUtilization", "kv-cache-memory-bytes": "kvCacheMemory",
	"memory-limit": "memoryLimit", "nnodes": "nodes",
	"enforce-eager": "enforceEager", "tensor-parallel-size": "tensorParallelSize",
	"data-parallel-size": "dataParallelSize", "data-parallel-size-local": "dataParallelSizeLocal",
	"enable-expert-parallel": "enableExpertParallel",
	"quantization":           "quantization",
	"kv-cache-dtype":         "kvCacheDType",
	"lora-modules":           "loraAdapters",
}

// simFlags maps llm-d-inference-sim's flags for times to a scenario's fields.
var simFlags = map[string]string{"time-to-first-token": "prefill", "inter-token-latency": "interTokenLatency",
	"max-num-seqs": "maxNumSeqs"}

// elsewhere are flags that the manifests' reader handles, or that do not affect a run.
var elsewhere = []string{"model", "served-model-name", "port", "host", "kv-transfer-config", "kv-transfer-compression",
	"uvicorn-log-level", "disable-log-requests", "no-enable-log-requests", "trust-remote-code", "download-dir", "dtype",
	"mode", "enable-kv-events", "kv-events-config"}

// Server returns the values of the flags by the fields of a scenario's modelServer, and the flags without an effect in
// a scenario.
func Server(c *gateway.Container) (values map[string]any, idle []string) {
	known := serverFlags
	if c.Simulator() {
		known = simFlags
	}
	values = map[string]any{}
	if most := generation(c); most > 0 && !c.Simulator() {
		values["maxNewTokens"] = most
	}
	for _, name := range c.Named() {
		to, known := known[name]
		positive := strings.TrimPrefix(name, "no-")
		switch {
		case known && name == "lora-modules":
			values[to] = adapterNames(c)
		case known:
			v, _ := c.Flag(name)
			values[to] = flagValue(name, v)
		case positive != name && serverFlags[positive] != "":
			values[serverFlags[positive]] = false
		case name == generationFlag && values["maxNewTokens"] != nil:
		case !slices.Contains(elsewhere, name):
			idle = append(idle, name)
		}
	}
	return values, idle
}

const generationFlag = "override-generation-config"

// generation returns the most tokens of an answer, 0 without the flag. A value that is not a JSON object counts as 0:
// the server itself refuses it.
func generation(c *gateway.Container) int {
	text, _ := c.Flag(generationFlag)
	var v struct {
		Most int `json:"max_new_tokens"`
	}
	if json.Unmarshal([]byte(text), &v) != nil {
		return 0
	}
	return v.Most
}

// Models returns the model that the server loads, "" if the command line names none, and the names under which it
// serves the model.
func Models(c *gateway.Container) (model string, names []string) {
	model, given := c.Flag("model")
	if line := c.Line(); !given {
		if i := slices.Index(line, "serve"); i >= 0 && i+1 < len(line) && !strings.HasPrefix(line[i+1], "-") {
			model = line[i+1]
		}
	}
	if names = c.Flags("served-model-name"); len(names) == 0 {
		names = []string{model}
	}
	return model, names
}

// Same reports whether two servers behave alike, so that they can be in one group of a pool.
func Same(a, b *gateway.Container) bool { return slices.Equal(behaviour(a), behaviour(b)) }

// behaviour returns the image and the command line of a model server, without the flags that may differ within a group.
func behaviour(c *gateway.Container) (out []string) {
	for _, word := range c.Line() {
		if !strings.HasPrefix(word, "--port") && !strings.HasPrefix(word, "--kv-transfer-config") {
			out = append(out, word)
		}
	}
	return append(out, c.Image)
}

// flagValue returns a flag's value in the form of a scenario.
func flagValue(name, v string) any {
	if v == "" || strings.HasPrefix(v, "--") {
		return true // a flag that is on
	}
	n, err := strconv.ParseFloat(v, 64)
	switch {
	case name == "swap-space" && err == nil:
		return v + "GiB"
	case simFlags[name] != "" && name != "max-num-seqs" && err == nil:
		if n <= 0 {
			return "1us"
		}
		return v + "ms"
	case err == nil:
		return json.Number(v)
	case v == "true" || v == "false":
		return v == "true"
	}
	return v
}

// adapterNames returns the names in --lora-modules, whose values are name=path or a JSON object with a name.
func adapterNames(c *gateway.Container) (out []string) {
	line := c.Line()
	for i, word := range line {
		flag, value, has := strings.Cut(word, "=")
		if strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-") != "lora-modules" ||
			!strings.HasPrefix(word, "-") {
			continue
		}
		list := []string{value}
		if !has {
			list = nil
			for _, v := range line[i+1:] {
				if strings.HasPrefix(v, "-") {
					break
				}
				list = append(list, v)
			}
		}
		for _, v := range list {
			var one struct {
				Name string `json:"name"`
			}
			if json.Unmarshal([]byte(v), &one) == nil && one.Name != "" {
				out = append(out, one.Name)
			} else if name, _, ok := strings.Cut(v, "="); ok {
				out = append(out, name)
			}
		}
	}
	return out
}

// Ranks returns how many data-parallel ranks a container runs.
func Ranks(c *gateway.Container) int {
	for _, name := range []string{"data-parallel-size-local", "data-parallel-size"} {
		text, _ := c.Flag(name)
		if n, err := strconv.Atoi(text); err == nil && n > 0 && !c.Simulator() {
			return min(n, 1024)
		}
	}
	return 1
}
