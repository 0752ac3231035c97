package apierror_test

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Each API's name for a status, and the class's where it has none.
func TestNames(t *testing.T) {
	for status, want := range map[int]apierror.Names{
		400: {EPP: "BadRequest", OpenAI: "invalid_request_error", Anthropic: "invalid_request_error",
			VLLM: "BadRequestError", Sidecar: "BadRequestError"},
		402: {EPP: "BadRequest", OpenAI: "invalid_request_error", Anthropic: "invalid_request_error",
			VLLM: "APIConnectionError", Sidecar: "BadRequestError"},
		413: {EPP: "RequestTooLarge", OpenAI: "invalid_request_error", Anthropic: "request_too_large",
			VLLM: "Request Entity Too Large", Sidecar: "BadRequestError"},
		429: {EPP: "ResourceExhausted", OpenAI: "rate_limit_error", Anthropic: "rate_limit_error",
			VLLM: "RateLimitError", Sidecar: "BadRequestError"},
		500: {EPP: "Internal", OpenAI: "server_error", Anthropic: "api_error", VLLM: "InternalServerError",
			Sidecar: "InternalServerError"},
		502: {EPP: "BadGateway", OpenAI: "server_error", Anthropic: "api_error", VLLM: "InternalServerError",
			Sidecar: "BadGateway"},
		503: {EPP: "ServiceUnavailable", OpenAI: "server_error", Anthropic: "overloaded_error",
			VLLM: "ServiceUnavailableError", Sidecar: "ServiceUnavailable"},
		599: {EPP: "Internal", OpenAI: "server_error", Anthropic: "api_error", VLLM: "InternalServerError",
			Sidecar: "InternalServerError"},
	} {
		if got := apierror.Of(status); got != want {
			t.Errorf("%d: %+v, expected %+v", status, got, want)
		}
	}
}
