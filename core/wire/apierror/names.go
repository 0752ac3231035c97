package apierror

import "cmp"

// Names are the names that the APIs of a pool give to an error of one HTTP status. They differ by component: the
// endpoint picker, the routing sidecar and the model server send a client different words for the same status.
type Names struct {
	// EPP is the endpoint picker's code (llm-d-router, pkg/common/error) and the metric label error_code. The real EPP
	// has no codes for 408, 413, 502 and 504, which only windtunnel's picker returns.
	EPP string
	// OpenAI and Anthropic are the types in the error objects of those APIs, as llm-d-router has written them since it
	// answers in JSON (after 0.10.0).
	OpenAI, Anthropic string
	// VLLM is the type in vLLM's error object: its own names, Python's phrase for the errors of its HTTP library (405,
	// 408, 413), and llm-d-inference-sim's names for those that only llm-d-inference-sim injects (401, 403, 422, 429).
	VLLM string
	// Sidecar is the type in the routing sidecar's error object (llm-d-router, pkg/sidecar/proxy).
	Sidecar string
}

var table = map[int]Names{
	400: {"BadRequest", "invalid_request_error", "invalid_request_error", "BadRequestError", "BadRequestError"},
	401: {"Unauthorized", "authentication_error", "authentication_error", "AuthenticationError", ""},
	403: {"Forbidden", "permission_error", "permission_error", "PermissionDeniedError", ""},
	404: {"NotFound", "not_found_error", "not_found_error", "NotFoundError", ""},
	405: {"", "", "", "Method Not Allowed", ""},
	408: {"RequestTimeout", "", "", "Request Timeout", ""},
	412: {"PreconditionFailed", "", "", "", ""},
	413: {"RequestTooLarge", "", "request_too_large", "Request Entity Too Large", ""},
	422: {"", "", "", "UnprocessableEntityError", ""},
	429: {"ResourceExhausted", "rate_limit_error", "rate_limit_error", "RateLimitError", ""},
	500: {"Internal", "server_error", "api_error", "InternalServerError", "InternalServerError"},
	501: {"", "", "", "NotImplementedError", ""},
	502: {"BadGateway", "", "", "", "BadGateway"},
	503: {"ServiceUnavailable", "", "overloaded_error", "ServiceUnavailableError", "ServiceUnavailable"},
	504: {"DeadlineExceeded", "", "", "", ""},
}

// Of returns the names for a status. Where an API has no name for it, the name is the API's name for 500 (a server's
// error) or for 400 (a client's error). For a client's error, vLLM's name is then APIConnectionError.
func Of(status int) Names {
	n, class := table[status], table[400]
	if status >= 500 {
		class = table[500]
	} else {
		class.VLLM = "APIConnectionError"
	}
	return Names{cmp.Or(n.EPP, class.EPP), cmp.Or(n.OpenAI, class.OpenAI), cmp.Or(n.Anthropic, class.Anthropic),
		cmp.Or(n.VLLM, class.VLLM), cmp.Or(n.Sidecar, class.Sidecar)}
}
