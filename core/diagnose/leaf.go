package diagnose

import "fmt"

// Leaf is a cause at the end of a decision tree, under a name that scripts and labs compare.
type Leaf string

// High latency: the eight leaves of document 003's tree, and the endpoint picker's time.
const (
	ScaleUp         Leaf = "scale-up"         // requests queue, and the servers have nothing left
	MaxNumSeqs      Leaf = "max-num-seqs"     // requests queue for places in the batch alone
	CacheWeight     Leaf = "cache-weight"     // repeated prompts go to servers that do not hold them
	SessionAffinity Leaf = "session-affinity" // conversations change their server
	MoreGPUs        Leaf = "more-gpus"        // the accelerators compute all the time
	Disaggregate    Leaf = "disaggregate"     // prompts delay the tokens of other requests
	RDMA            Leaf = "rdma"             // KV caches travel too slowly between servers
	Network         Leaf = "network"          // messages between the parts take the time
	EPPTime         Leaf = "epp-time"         // the picker takes the time
)

// The endpoint picker does not route.
const (
	PoolSelector  Leaf = "pool-selector"  // the InferencePool selects no pod
	WrongPort     Leaf = "wrong-port"     // the pool's targetPort is not the model servers' port
	Scraper       Leaf = "scraper"        // the picker does not reach metrics pages
	ExtProc       Leaf = "ext-proc"       // Envoy does not reach the picker
	EPPConfig     Leaf = "epp-config"     // the EndpointPickerConfig is wrong
	ScorerWeights Leaf = "scorer-weights" // filters and weights send most requests to a few pods
)

// SSRF protection blocks valid requests.
const (
	PoolName      Leaf = "pool-name"      // INFERENCE_POOL_NAME names no InferencePool
	PrefillLabels Leaf = "prefill-labels" // prefill pods lack the labels that make them prefillers
	OutsidePool   Leaf = "outside-pool"   // the named prefiller is no pod of the pool
)

// KV transfers fail.
const (
	SideChannel     Leaf = "side-channel"     // side channels' ports differ, or nobody listens there
	Transport       Leaf = "transport"        // the transport is refused, or the prefill server dies
	TransferTimeout Leaf = "transfer-timeout" // the prefill server or the transfer takes too long
	PrefillerForgot Leaf = "prefiller-forgot" // the prefill server no longer holds the blocks
)

// A model server does not fit into memory.
const (
	ModelTooLarge Leaf = "model-too-large" // the weights do not fit
	KVTooSmall    Leaf = "kv-too-small"    // too little is left for the KV cache
	BatchTooLarge Leaf = "batch-too-large" // a full batch does not fit
	HostMemory    Leaf = "host-memory"     // the container's limit is too low
)

// The KV-Cache Manager.
const (
	NoKVEvents  Leaf = "no-kv-events" // the index gets no events of the model servers' blocks
	IndexMemory Leaf = "index-memory" // the index grows beyond its memory
)

// The held-open request of document 000.
const (
	NoPart2        Leaf = "no-part2"        // the picker never injects part 2
	WholeBody      Leaf = "whole-body"      // the model server reads the whole body before it answers
	RequestTimeout Leaf = "request-timeout" // a time limit of Envoy or of the picker ends the prefill
)

// Branch is a section of the guide.
type Branch string

// The branches.
const (
	Latency    Branch = "high latency"
	Routing    Branch = "EPP does not route"
	SSRF       Branch = "SSRF protection blocks valid requests"
	Transfers  Branch = "KV transfer fails"
	Memory     Branch = "out of memory"
	KVManagers Branch = "KV-Cache Manager"
	Held       Branch = "held-open request"
)

// Cause describes a leaf.
type Cause struct {
	Leaf   Leaf
	Branch Branch
	// Text is the cause in a sentence, and Remedies what removes it, the first choice first.
	Text     string
	Remedies []string
	// Source is where the documents have the leaf, such as "document 003, line 3501".
	Source string
}

// line returns the source of a line of document 003.
func line(n int) string { return fmt.Sprintf("document 003, line %d", n) }

// Causes lists every leaf in the order of the guide.
func Causes() []Cause { return causes }

// CauseOf returns the description of a leaf, and whether there is one.
func CauseOf(l Leaf) (Cause, bool) {
	for _, c := range causes {
		if c.Leaf == l {
			return c, true
		}
	}
	return Cause{}, false
}

var causes = []Cause{
	{ScaleUp, Latency, "the servers are overloaded: requests wait, and no resource is left",
		[]string{"add model servers (replicas)", "limit the load at the picker (flow control)"}, line(3500)},
	{MaxNumSeqs, Latency, "requests wait for a place in the batch, while memory for more of them is free",
		[]string{"raise max-num-seqs"}, line(3501)},
	{CacheWeight, Latency, "prompts repeat, and go to servers that do not hold their beginnings",
		[]string{"raise the weight of the prefix-cache scorer", "route by KV events"}, line(3506)},
	{SessionAffinity, Latency, "conversations continue at servers that do not hold their earlier turns",
		[]string{"route by session (session-affinity-scorer)", "raise the weight of the prefix-cache scorer"},
		line(3507)},
	{MoreGPUs, Latency, "the accelerators compute all the time",
		[]string{"add GPUs: more servers, or a larger tensor parallel size", "a faster accelerator or quantization"},
		line(3512)},
	{Disaggregate, Latency, "long prompts share their steps with tokens of other requests, which come late",
		[]string{"prefill and decode on different servers", "a smaller max-num-batched-tokens"}, line(3513)},
	{RDMA, Latency, "KV caches take too long from prefill to decode servers",
		[]string{"RDMA between the servers (UCX_TLS, nic)", "a faster network, or smaller caches (INT8)"}, line(3515)},
	{Network, Latency, "messages between client, gateway, picker and servers take most of the time",
		[]string{"place the parts closer together, and reuse connections"}, line(3516)},
	{EPPTime, Latency, "the endpoint picker takes too long to decide",
		[]string{"more workers or replicas of the picker", "fewer scorers, and no slow services behind them"},
		line(3541)},

	{PoolSelector, Routing, "the InferencePool has no endpoint: its selector matches no ready pod",
		[]string{"make the pods' labels and the InferencePool's selector equal"}, line(3567)},
	{WrongPort, Routing, "the endpoints do not answer at the pool's port",
		[]string{"set targetPort to the port on which the model servers listen"}, line(3569)},
	{Scraper, Routing, "the picker does not reach metrics pages, and decides without them",
		[]string{"make the metrics pages reachable (port, path)", "check the scraper's interval and time-out"},
		line(3568)},
	{ExtProc, Routing, "Envoy gets no answer from the endpoint picker",
		[]string{"check the picker's address, port and TLS in the InferencePool or EnvoyExtensionPolicy"}, line(3562)},
	{EPPConfig, Routing, "the picker's configuration is wrong",
		[]string{"correct the EndpointPickerConfig; windtunnel manifests check reports each mistake"}, line(3570)},
	{ScorerWeights, Routing, "filters and weights send most requests to a few pods",
		[]string{"check the filters, and weigh load higher (queue-scorer, kv-cache-utilization-scorer)"}, line(3570)},

	{PoolName, SSRF, "the sidecar's INFERENCE_POOL_NAME names no InferencePool, so it allows no prefiller",
		[]string{"set INFERENCE_POOL_NAME to the InferencePool's name"}, line(3593)},
	{PrefillLabels, SSRF, "prefill pods lack the label by which they are prefillers",
		[]string{"label them llm-d.ai/role: prefill"}, line(3598)},
	{OutsidePool, SSRF, "requests name prefillers that are no pods of the pool",
		[]string{"add the prefill pods to the pool (selector, labels)", "check who sets x-prefiller-host-port"},
		line(3598)},

	{SideChannel, Transfers, "the side channels of prefill and decode servers do not meet",
		[]string{"set VLLM_NIXL_SIDE_CHANNEL_PORT and its host so that decode servers reach it"}, line(3627)},
	{Transport, Transfers, "the connection between prefill and decode servers is refused or breaks",
		[]string{"set UCX_TLS to transports that both hosts have, such as cuda_ipc,cuda_copy,tcp"}, line(3635)},
	{TransferTimeout, Transfers, "prefill servers or transfers do not answer in time",
		[]string{"a longer time-out, more prefill servers, or a faster network"}, line(3618)},
	{PrefillerForgot, Transfers, "prefill servers no longer hold the blocks that decode servers fetch",
		[]string{"hold blocks longer (VLLM_NIXL_ABORT_REQUEST_TIMEOUT, holdBlocks)", "a larger KV cache for prefill"},
		line(3614)},

	{ModelTooLarge, Memory, "the model's weights do not fit into the accelerator's memory",
		[]string{"a larger tensor parallel size", "quantization (awq, gptq, fp8) or a smaller model"}, line(3656)},
	{KVTooSmall, Memory, "too little memory is left for the KV cache",
		[]string{"a smaller max-model-len, or a higher gpu-memory-utilization", "more GPUs for each server",
			"CPU offloading (swap-space)"}, line(3646)},
	{BatchTooLarge, Memory, "a full batch does not fit beside the weights",
		[]string{"lower max-num-seqs and max-num-batched-tokens", "a lower gpu-memory-utilization"}, line(3649)},
	{HostMemory, Memory, "the container's memory limit is too low",
		[]string{"raise the container's memory limit", "lower swap-space"}, line(3659)},

	{NoKVEvents, KVManagers, "the index of KV blocks gets no events",
		[]string{"enable KV events (VLLM_KV_EVENT_ENABLED, --kv-events-config)",
			"send them to the index (VLLM_KV_EVENT_ZMQ_ENDPOINT)"}, line(1930)},
	{IndexMemory, KVManagers, "the index of KV blocks needs more memory than it has",
		[]string{"lower INDEX_MAX_BLOCKS and INDEX_TTL", "raise the memory limit"}, line(1956)},

	{NoPart2, Held, "the picker never sends part 2, so the model server waits for the end of the request",
		[]string{"send the metadata and the closing boundary once the first token is seen"}, "document 000, line 10"},
	{WholeBody, Held, "the model server reads the whole body before it answers, so part 1 never gets a first token",
		[]string{"a server that answers on part 1", "flow: plain for this pool"}, "document 000, line 7"},
	{RequestTimeout, Held, "a time limit ends requests whose prefill still runs",
		[]string{"a longer time-out at the route, the gateway (request, stream idle) or the picker (epp.holdLimit)"},
		"document 000, line 6"},
}
