package picker

// Header and metadata names of the endpoint picker protocol (Gateway API
// Inference Extension proposal 004, version 1.0.0) and of llm-d-router v0.10.
const (
	HeaderDestination  = "x-gateway-destination-endpoint"
	KeyScores          = "x-gateway-destination-endpoint-scores"
	KeyServed          = "x-gateway-destination-endpoint-served"
	KeySubset          = "x-gateway-destination-endpoint-subset"
	NamespaceLB        = "envoy.lb"
	NamespaceSubset    = "envoy.lb.subset_hint"
	HeaderRequestID    = "x-request-id"
	HeaderPrefiller    = "x-prefiller-host-port"
	HeaderEncoders     = "x-encoder-hosts-ports"
	HeaderDataParallel = "x-data-parallel-host-port"
	HeaderKVSource     = "x-kv-cache-source-host-port"
	HeaderSessionToken = "x-session-token"
	HeaderSessionID    = "x-session-id"
	HeaderProfile      = "epp-profile"
	HeaderPrefer       = "prefer"
	HeaderWentResponse = "x-went-into-resp-headers"
)

// Headers that the EPP consumes, today's name first. The older name is read
// when the newer one is absent or empty.
var (
	HeadersObjective    = [2]string{"x-llm-d-inference-objective", "x-gateway-inference-objective"}
	HeadersFairness     = [2]string{"x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"}
	HeadersModelRewrite = [2]string{"x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"}
	HeadersTTFT         = [2]string{"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"}
	HeadersTPOT         = [2]string{"x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"}
)

// Headers in which a client describes its video: frames per second, duration in seconds, and "WIDTHxHEIGHT".
const (
	HeaderVideoFPS        = "x-llm-d-video-fps"
	HeaderVideoSeconds    = "x-llm-d-video-duration-seconds"
	HeaderVideoResolution = "x-llm-d-video-resolution"
)

// Headers of documents 002 and 003, for people to read; routing uses HeaderDestination. All but the first are response
// headers.
const (
	HeaderTargetPod      = "x-target-pod"   // the destination's IP address, without its port
	HeaderSelectedPod    = "x-selected-pod" // the destination's name
	HeaderTraceID        = "x-trace-id"     // the trace that the client or Envoy began, else the request's id
	HeaderDecodePod      = "x-decode-pod"
	HeaderPrefillPod     = "x-prefill-pod"
	HeaderCacheHit       = "x-cache-hit"           // whether the destination was known to hold part of the prompt
	HeaderCachePrefix    = "x-cache-prefix-length" // how much of the prompt, in tokens
	HeaderSchedulingTime = "x-scheduling-time-ms"
	HeaderFilterTime     = "x-filter-time-ms"
	HeaderScorerTime     = "x-scorer-time-ms"
	// HeaderExplain asks for all of these in the response, and for HeaderScores: every endpoint's total.
	HeaderExplain = "x-windtunnel-explain"
	HeaderScores  = "x-windtunnel-scores"
)

// Request headers of document 003 (client-headers).
const (
	HeaderPriority       = "x-priority"        // high, normal, low, or a number
	HeaderCachePolicy    = "x-cache-policy"    // prefer-hit
	HeaderModelOverride  = "x-model-override"  // a model's name
	HeaderRequestTimeout = "x-request-timeout" // such as 30s
	HeaderMaxRetries     = "x-max-retries"
)

// InternalHeaders are headers that pickers send to gateways, sidecars and model servers, and Envoy's own. Gateways
// remove them from clients' requests.
var InternalHeaders = []string{HeaderDestination, KeySubset, KeyServed, KeyScores, HeaderPrefiller, HeaderEncoders,
	HeaderDataParallel, HeaderKVSource,
	HeaderTargetPod, HeaderSelectedPod, "x-gateway-worker-id", "x-dynamo-worker-instance-id", "x-dynamo-dp-rank",
	"x-dynamo-prefill-instance-id", "x-dynamo-prefill-dp-rank", "x-dynamo-routing-mode",
	"x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-max-retries",
	"x-envoy-retry-on"}

// DefaultFairnessID is the fairness id of a request without one.
const DefaultFairnessID = "default-flow"

// maxFairnessBytes limits a fairness id, which is kept as long as its flow exists. A digest replaces a longer one.
const maxFairnessBytes = 1024

// Labels of a model server's role in disaggregated serving, and of its engine (with the older name of the Gateway API
// Inference Extension).
const (
	LabelRole      = "llm-d.ai/role"
	LabelEngine    = "llm-d.ai/engine-type"
	LabelEngineOld = "inference.networking.k8s.io/engine-type"
)
