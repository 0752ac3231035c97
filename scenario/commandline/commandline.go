// Package commandline reads what the command line of a container in a manifest says of a model server, in the words
// of a scenario's modelServer.
package commandline

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// serverFlags are the flags of a model server, and what they are called in a scenario.
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
	"quantization":   "quantization",
	"kv-cache-dtype": "kvCacheDType",
	"lora-modules":   "loraAdapters",
}

// simFlags are those of llm-d-inference-sim that say how long all takes.
var simFlags = map[string]string{"time-to-first-token": "prefill", "inter-token-latency": "interTokenLatency",
	"max-num-seqs": "maxNumSeqs"}

// elsewhere are flags that act in another way, or make no difference to what is played.
var elsewhere = []string{"model", "served-model-name", "port", "host", "kv-transfer-config", "kv-transfer-compression",
	"uvicorn-log-level", "disable-log-requests", "no-enable-log-requests", "trust-remote-code", "download-dir", "dtype",
	"mode", "enable-kv-events", "kv-events-config"}

// Server is what flags say, by the fields of a scenario's modelServer, and which flags have no
// effect in a scenario.
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

// generation is the most tokens of an answer, 0 where no flag says it; what is no JSON object the server
// itself refuses.
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

// Models are the model that is loaded, "" where none is said, and the names under which it is
// served.
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

// Same says whether two servers are alike, but for what makes no difference between the groups
// of a pool.
func Same(a, b *gateway.Container) bool { return slices.Equal(behaviour(a), behaviour(b)) }

// behaviour is the command line of a model server without what makes no difference
// between groups.
func behaviour(c *gateway.Container) (out []string) {
	for _, word := range c.Line() {
		if !strings.HasPrefix(word, "--port") && !strings.HasPrefix(word, "--kv-transfer-config") {
			out = append(out, word)
		}
	}
	return append(out, c.Image)
}

// flagValue is a flag's value as a scenario has it.
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

// adapterNames are those of --lora-modules: name=path, or a JSON object with a name.
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
