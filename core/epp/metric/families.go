package metric

import "slices"

const (
	prefix     = "llm_d_epp_"
	extension  = "inference_extension_"
	objective  = "inference_objective_"
	ofPool     = "inference_pool_"
	scheduler  = "llm_d_inference_scheduler_"
	kvCache    = "llm_d_router_epp_kv_cache_"
	oldKVCache = "kvcache_"
	document2  = "scheduler_" // document 002
	document3  = "llmd_epp_"  // document 003
)

var (
	models    = []string{"model_name", "target_model_name"}
	request   = append(slices.Clone(models), "fairness_id", "priority")
	flow      = []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}
	plugin    = []string{"plugin_name", "plugin_type"}
	decision  = append(slices.Clone(plugin), "model_name", "decision_type")
	predicted = append(slices.Clone(plugin), models...)
	none      = []string{}
)

func with(label string, labels []string) []string { return append([]string{label}, labels...) }

func attempt(endpoint string) []string {
	return []string{"status", "target_model_name", endpoint, "namespace", "port"}
}

// The buckets of the real picker's histograms; times are in seconds.
var (
	toHour = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45,
		60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	toTwoMinutes = toHour[:24]
	perToken     = []float64{0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4,
		0.5, 0.6, 0.8, 1, 2}
	perTokenToMinutes = append(slices.Clone(perToken[:len(perToken)-1]), 1.5, 2, 3, 4.5, 6, 12, 18, 24, 30, 36, 48, 60,
		90, 120, 180, 270, 360)
	betweenPieces = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2}
	normalized    = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}
	tokens        = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536, 131072,
		262144, 524288, 1048576}
	quick  = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1}
	answer = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}
	queue  = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	tenths = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
	ask    = []float64{0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}
	evict  = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	lookUp = []float64{1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, .1, .5, 1}
	first  = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	stream = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600}
)

func native(f *Family) *Family {
	f.Native = true
	return f
}

// doubling returns n bounds, each twice the previous one.
func doubling(from float64, n int) (out []float64) {
	for range n {
		out = append(out, from)
		from *= 2
	}
	return out
}

// Metrics of requests.
var (
	Requests = counter("request_total", "Requests sent on.", objective+"request_total", request,
		append(slices.Clone(models), "priority"))
	Errors = counter("request_error_total", "Requests that failed.", objective+"request_error_total",
		with("error_code", request), with("error_code", models))
	Running = gauge("request_running", "Requests that are under way.", objective+"running_requests", request,
		models[:1])
	Duration = histogram("request_duration_seconds", "From the request to the end of its response.",
		objective+"request_duration_seconds", toHour, request, models)
	RequestBytes = histogram("request_size_bytes", "Length of request bodies.", objective+"request_sizes",
		doubling(64, 25), request, models)
	ResponseBytes = histogram("response_size_bytes", "Length of response bodies.", objective+"response_sizes",
		tokens[:15], request, models)
	InputTokens = histogram("request_input_tokens", "Prompt tokens, as the model server counted them.",
		objective+"input_tokens", tokens, request, models)
	OutputTokens = histogram("request_output_tokens", "Generated tokens, as the model server counted them.",
		objective+"output_tokens", tokens[:12], request, models)
	CachedTokens = histogram("request_cached_tokens", "Prompt tokens that the model server had cached.",
		objective+"prompt_cached_tokens", tokens, request, models)
	NTPOT = histogram("request_ntpot_seconds", "Duration of a request over its generated tokens.",
		objective+"normalized_time_per_output_token_seconds", normalized, request, models)
	TPOT = histogram("request_streaming_tpot_seconds", "Time per output token after the first, of streams.", "",
		perToken, request, nil)
	ITL = histogram("request_streaming_itl_seconds", "Time between two pieces of a stream.", "", betweenPieces, request,
		nil)
	TTFT = histogram("request_ttft_seconds", "From the request to the first piece of its response.", "", toTwoMinutes,
		with("streaming", request), nil)
	ResponseProcessing = histogram("response_processing_duration_seconds", "Time that the picker spent on a response.",
		"", answer, nil, nil)
)

// Metrics of decisions.
var (
	Decisions = histogram("scheduler_e2e_duration_seconds", "Time of a decision.",
		extension+"scheduler_e2e_duration_seconds", quick, nil, none)
	Plugins = histogram("plugin_duration_seconds", "Time of one plug-in in one decision.",
		extension+"plugin_duration_seconds", quick, []string{"extension_point", "plugin_type", "plugin_name"}, nil)
	Attempts = counter("scheduler_attempts_total", "Decisions by outcome and endpoint.",
		extension+"scheduler_attempts_total", attempt("endpoint_name"), attempt("pod_name"))
	Disagg = counter("disagg_decision_total", "Decisions by kind of disaggregation.", scheduler+"disagg_decision_total",
		decision, []string{"model_name", "decision_type"})
	PD = counter("pd_decision_total", "Decisions of pd-profile-handler. Deprecated.", scheduler+"pd_decision_total",
		decision, []string{"model_name", "decision_type"})
	Rewrites = counter("model_rewrite_decisions_total", "Requests whose model an InferenceModelRewrite chose.",
		extension+"model_rewrite_decisions_total", []string{"model_rewrite_name", "model_name", "target_model"}, nil)
	HitBytes = histogram("prefix_indexer_hit_bytes", "How much of a prompt its endpoint was known to hold.",
		extension+"prefix_indexer_hit_bytes", append([]float64{0}, doubling(16, 13)...), plugin, none)
	HitRatio = histogram("prefix_indexer_hit_ratio", "Which share of a prompt its endpoint was known to hold.",
		extension+"prefix_indexer_hit_ratio", tenths, plugin, none)
)

// Metrics of flow control.
var (
	QueueTime = histogram("flow_control_request_queue_duration_seconds", "Time in the flow-control queue.",
		extension+"flow_control_request_queue_duration_seconds", queue, with("outcome", flow), nil)
	EnqueueTime = histogram("flow_control_request_enqueue_duration_seconds", "Time that entering the queue took.",
		extension+"flow_control_request_enqueue_duration_seconds", quick,
		[]string{"fairness_id", "priority", "outcome"}, nil)
	QueueSize  = gauge("flow_control_queue_size", "Requests that wait.", extension+"flow_control_queue_size", flow, nil)
	QueueBytes = gauge("flow_control_queue_bytes", "Bytes that wait.", extension+"flow_control_queue_bytes", flow, nil)
	Dispatched = counter("flow_control_requests_total", "Requests that left flow control, by outcome.", "",
		[]string{"outcome", "priority", "inference_pool"}, nil)
	RevocationsIssued = counter("flow_control_revocations_issued_total",
		"Requests in flight that were evicted, by the priority for which.", "", []string{"priority", "inference_pool"},
		nil)
	Revocations = counter("flow_control_revocations_total", "Evicted requests by how they ended.", "",
		[]string{"outcome", "inference_pool"}, nil)
	Confirmation = histogram("flow_control_revocation_confirmation_seconds",
		"From an eviction to the end of the request's stream.", "", evict, flow[2:3], nil)
	Cycle = histogram("flow_control_dispatch_cycle_duration_seconds", "Time of one round of flow control.",
		extension+"flow_control_dispatch_cycle_duration_seconds", quick, nil, none)
)

// Metrics of scrapes.
var (
	PollErrors = counter("datalayer_poll_errors_total", "Scrapes that failed.", scheduler+"datalayer_poll_errors_total",
		[]string{"source_type"}, nil)
	ExtractErrors = counter("datalayer_extract_errors_total", "Scraped pages that could not be read.",
		scheduler+"datalayer_extract_errors_total", []string{"source_type", "extractor_type"}, nil)
)

// Metrics of objectives: document 004's, under its names and under those of predicted-latency-producer in today's
// picker. Times and objectives are reported for each request; predictions, and everything under the newer names, only
// with such a plug-in.
var (
	ObjectiveTTFT = plain(Histogram, objective+"request_ttft_seconds",
		"From the request to the first piece of its response.", toHour, models...)
	ObjectiveTPOT = plain(Histogram, objective+"request_tpot_seconds",
		"Time per output token after the first, of streams.", perTokenToMinutes, models...)
	PredictedTTFT = histogram("request_predicted_ttft_seconds", "Predicted time to first token at the chosen endpoint.",
		objective+"request_predicted_ttft_seconds", toHour, predicted, models)
	PredictingTTFT = histogram("request_ttft_prediction_duration_seconds", "Time that predicting took.",
		objective+"request_ttft_prediction_duration_seconds", ask, predicted, models)
	PredictedTPOT = histogram("request_predicted_tpot_seconds",
		"Predicted time per output token at the chosen endpoint.", objective+"request_predicted_tpot_seconds",
		perTokenToMinutes, predicted, models)
	PredictingTPOT = histogram("request_tpot_prediction_duration_seconds", "Time that predicting took.",
		objective+"request_tpot_prediction_duration_seconds", ask, predicted, models)
	Violations = plain(Counter, objective+"request_slo_violation_total", violated, nil, with("type", models)...)
	// ViolationsOf and GatheredOf are the same metrics under the newer names.
	ViolationsOf = plain(Counter, prefix+"request_slo_violation_total", violated, nil, with("type", predicted)...)
	// Gathered has the last request's times in one gauge, by type.
	Gathered   = plain(Last, objective+"inference_request_metric", gathered, nil, with("type", models)...)
	GatheredOf = plain(Last, prefix+"inference_request_metric", gathered, nil, with("type", predicted)...)
)

const (
	violated = "Requests that missed the objective that they stated, by type: ttft or tpot."
	gathered = "The last request's times in seconds, by type: ttft, tpot, predicted_ttft, predicted_tpot, " +
		"ttft_prediction_duration, tpot_prediction_duration, ttft_slo_violation, tpot_slo_violation (0 or 1)."
)

// Metrics of documents 002 and 003 that grow with each decision.
var (
	Scheduling = plain(Summary, document3+"scheduling_duration_seconds", "Time of a decision.", nil)
	FilterTime = plain(Histogram, document3+"filter_duration_seconds", "Time of a filter.", quick, "filter")
	ScorerTime = plain(Histogram, document3+"scorer_duration_seconds", "Time of a scorer.", quick, "scorer")
)

// Metrics of documents 002 and 003, computed when a page is read: a decision over a thousand endpoints must not write a
// thousand metrics.
var (
	Profiles = asked(Counter, document2+"requests_total",
		"Runs of a profile, by result: selected or failed.",
		"profile", "decision")
	PodScore = asked(Gauge, document2+"pod_score", "Each pod's total in the profile's last run.", "pod",
		"profile")
	ProfileSeconds = asked(Gauge, document2+"decision_duration_seconds",
		"Time of the last decision in which the profile ran.", "profile")
	CacheHits = asked(Counter, document2+"cache_hits_total",
		"Requests that went to a pod that was known to hold part of the prompt.", "profile")
	CacheMisses = asked(Counter, document2+"cache_misses_total", "Requests that went to a pod that was not.", "profile")
	Results     = asked(Counter, document3+"scheduling_decisions_total",
		"Decisions by result: success, no_pods, filtered_out or error.", "result")
	Candidates = asked(Counter, document3+"candidate_pods_total", "Pods that decisions began with.")
	Filtered   = asked(Counter, document3+"filtered_pods_total", "Pods that filters removed.")
	Scored     = asked(Counter, document3+"scored_pods_total", "Pods that were scored.")
	HitRate    = asked(Gauge, document3+"cache_hit_rate",
		"Share of its prompts' blocks that the pod was known to hold.",
		"pod")
	PrefixBytes = asked(Gauge, document3+"cache_prefix_length_bytes",
		"How much of its last prompt the pod was known to hold.", "pod")
	SessionsKept = asked(Counter, document3+"session_affinity_hits_total",
		"Requests of a session that went where it had been before.")
	SessionsMoved = asked(Counter, document3+"session_affinity_misses_total", "Requests of a session that did not.")
)

// Metrics of the pool, computed when a page is read.
var (
	EndpointQueue = renamed(read("per_endpoint_queue_size", "Waiting requests by endpoint.",
		ofPool+"per_pod_queue_size", "name", "model_server_endpoint"), "name", "model_server_pod")
	MeanKV = read("average_kv_cache_utilization", "Mean over the pool.", ofPool+"average_kv_cache_utilization",
		"name")
	MeanWait = read("average_queue_size", "Mean over the pool.", ofPool+"average_queue_size", "name")
	MeanRun  = read("average_running_requests", "Mean over the pool.", ofPool+"average_running_requests", "name")
	DevKV    = read("std_dev_kv_cache_utilization", "Standard deviation over the pool.", "", "name")
	DevWait  = read("std_dev_queue_size", "Standard deviation over the pool.", "", "name")
	DevRun   = read("std_dev_running_requests", "Standard deviation over the pool.", "", "name")
	Ready    = read("ready_endpoints", "Endpoints of the pool.", ofPool+"ready_pods", "name")

	IndexSize = renamed(read("prefix_indexer_size", "Blocks that the prefix index remembers.",
		extension+"prefix_indexer_size", plugin...))
	InflightRequests = read("inflight_requests", "Requests in flight by endpoint and flow.", "", inflight...)
	InflightTokens   = read("inflight_tokens", "Tokens in flight by endpoint and flow.", "", inflight...)

	Saturation = read("flow_control_pool_saturation", "How full the pool is; 1 is full.",
		extension+"flow_control_pool_saturation", "inference_pool")
	ProgramService = read("program_aware_attained_service_tokens", "Service that a program has had lately.", "",
		"program_id")
	ProgramWait = read("program_aware_avg_wait_time_milliseconds",
		"How long a program's requests waited; of several under one label, the longest.", "", "program_id")
	Fairness = read("program_aware_jains_fairness_index",
		"Jain's index over the programs' waits; 1 is fair, 0 before anything was weighed.", "")
	ReclaimTarget = read("flow_control_reclaim_target",
		"By how much the pool was too full when requests were evicted last.", "", "inference_pool")
	PendingReclaim = read("flow_control_pending_reclaim", "What evictions are still expected to free.", "",
		"inference_pool")
	Stale = read("flow_control_stale_endpoints", "Endpoints whose metrics are too old.", "", "detector")
)

var inflight = []string{"endpoint_name", "namespace", "producer_name", "fairness_id", "priority"}

// Metrics of the server of the picker's ext_proc service.
var (
	Streams    = plain(Gauge, prefix+"extproc_streams_inflight", "ext_proc streams that have not ended.", nil)
	Processing = native(plain(Histogram, prefix+"request_processing_duration_seconds",
		"From the request's last byte to the first message out.", first))
	StreamTime = plain(Histogram, prefix+"extproc_stream_duration_seconds", "How long an ext_proc stream was open.",
		stream)
	StreamsEnded = plain(Counter, prefix+"extproc_streams_total", "ext_proc streams by the gRPC code that ended them.",
		nil, "code")
	Info = gauge("info", "What runs.", extension+"info", []string{"commit", "build_ref"}, nil)
)

// ofKV returns a family of an index of KV blocks. Its older name is kvcache_ and old; "" is no older name.
func ofKV(kind Kind, name, old, help string, labels ...string) *Family {
	f := asked(kind, kvCache+name, "[ALPHA] "+help, labels...)
	if old != "" {
		f.Old = oldKVCache + old
	}
	return f
}

// Metrics of an index of KV blocks.
var (
	KVMessages = ofKV(Counter, "events_messages_received_total", "", "Messages with KV events.", "pod_identifier")
	KVErrors   = ofKV(Counter, "events_zmq_errors_total", "", "Failures of the connections that KV events come over.",
		"operation", "pod_identifier")
	KVLookups = func() *Family {
		const name = "index_lookup_latency_seconds"
		f := ofKV(Histogram, name, name, "Time of a look-up.")
		f.Buckets = lookUp
		return f
	}()
	KVAdmissions = ofKV(Counter, "index_admissions_total", "index_admissions_total", "Blocks stored.")
	KVEvictions  = ofKV(Counter, "index_evictions_total", "index_evictions_total", "Blocks removed.")
	KVRequests   = ofKV(Counter, "index_lookup_requests_total", "index_lookup_requests_total", "Prompts looked up.")
	KVHits       = ofKV(Counter, "index_lookup_hits_total", "index_lookup_hits_total",
		"Blocks found on the pod with most.")
	KVMostHits  = ofKV(Counter, "index_max_pod_hit_count_total", "index_max_pod_hit_count_total", "The same.")
	KVForwarded = ofKV(Counter, "events_dedup_removed_hashes_forwarded_total",
		"kvevents_dedup_removed_hashes_forwarded_total", "Removals that were not repetitions.")
	KVSuppressed = ofKV(Counter, "events_dedup_removed_hashes_suppressed_total",
		"kvevents_dedup_removed_hashes_suppressed_total", "Removals of blocks that were stored once more.")
	KVSubscribers = ofKV(Gauge, "events_active_subscribers", "",
		"Publishers dialled, and one for the socket that is bound.")
	KVWorkers = ofKV(Gauge, "events_pool_capacity", "",
		"Workers configured for KV events; one goroutine does the work.")
	KVWaiting = ofKV(Gauge, "events_pool_queue_depth", "", "Messages that wait for a worker.")
)
