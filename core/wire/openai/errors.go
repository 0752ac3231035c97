package openai

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Error is an answer that refuses or ends a request. OpenAI's clients raise an exception for it.
type Error struct {
	Status  int    // HTTP status; also the code on the wire
	Message string // what was wrong, what was expected, what to do
	Type    string // vLLM's name for the kind, for example BadRequestError
	Param   string // the request's field at fault; empty where none is
}

func (e *Error) Error() string { return strconv.Itoa(e.Status) + " " + e.Type + ": " + e.Message }

// Errorf returns an error of the type that belongs to the status.
func Errorf(status int, param, format string, args ...any) *Error {
	return &Error{Status: status, Type: apierror.Of(status).VLLM, Param: param, Message: fmt.Sprintf(format, args...)}
}

// BadRequest returns the answer to a request whose field param is wrong.
func BadRequest(param, format string, args ...any) *Error { return Errorf(400, param, format, args...) }

// NotFound returns the answer to a request for something that does not exist.
func NotFound(param, format string, args ...any) *Error { return Errorf(404, param, format, args...) }

// NoSuchPath returns the answer to an unknown path. vLLM gives it the status' own name as type, while an unknown model
// is a NotFoundError.
func NoSuchPath() *Error {
	e := NotFound("", "Not Found")
	e.Type = "Not Found"
	return e
}

// NoSuchMethod returns the answer to a method that a path does not support.
func NoSuchMethod() *Error { return Errorf(405, "", "Method Not Allowed") }

// TooSlow returns the answer to a body that arrives too slowly.
func TooSlow(format string, args ...any) *Error { return Errorf(408, "", format, args...) }

// Conflict returns the answer to a request that the server's state forbids.
func Conflict(format string, args ...any) *Error { return Errorf(409, "", format, args...) }

// TooLarge returns the answer to a body, or to its field param, that exceeds a limit.
func TooLarge(param, format string, args ...any) *Error { return Errorf(413, param, format, args...) }

// Failed returns the answer to a request that the server failed to serve.
func Failed(format string, args ...any) *Error { return Errorf(500, "", format, args...) }

// InvalidUserInput returns the answer of vLLM's adapter API to a load or unload that fails.
func InvalidUserInput(format string, args ...any) *Error {
	return &Error{Status: 400, Type: "InvalidUserInput", Message: fmt.Sprintf(format, args...)}
}

// FailureTypes are the failures that llm-d-inference-sim injects, by its names and with its texts
// (pkg/llm-d-inference-sim/failures.go). A %s in a message stands for the model.
var FailureTypes = map[string]Error{
	"rate_limit": {429, "Rate limit reached for %s in organization org-xxx on requests per min (RPM): Limit 3, " +
		"Used 3, Requested 1.", "RateLimitError", ""},
	"invalid_api_key": {401, "Incorrect API key provided.", "AuthenticationError", ""},
	"context_length": {400, "This model's maximum context length is 4096 tokens. However, your messages resulted in " +
		"4500 tokens.", "BadRequestError", "messages"},
	"server_error":    {503, "The server is overloaded or not ready yet.", "InternalServerError", ""},
	"invalid_request": {400, "Invalid request: missing required parameter 'model'.", "BadRequestError", "model"},
	"model_not_found": {404, "The model '%s-nonexistent' does not exist", "NotFoundError", "model"},
}

// Failure returns the answer to a request that fails with one of FailureTypes.
func Failure(kind, model string) *Error {
	e := FailureTypes[kind]
	e.Message = strings.Replace(e.Message, "%s", model, 1)
	return &e
}

// Invalidf returns the answer to a body that is not valid JSON, lacks a field, or has a field of the wrong type. vLLM
// checks these first, and gives them the status' own name as type.
func Invalidf(param, format string, args ...any) *Error {
	e := Errorf(400, param, format, args...)
	e.Type = "Bad Request"
	return e
}

// UnknownModel returns the answer to a model name that is neither a served model nor a loaded adapter.
func UnknownModel(name string) *Error {
	return Errorf(404, "model", "The model `%s` does not exist.", name)
}

// TooLong returns the answer to a prompt that leaves no space for one token.
func TooLong(maxModelLen, promptTokens int) *Error {
	return Errorf(400, "input_tokens",
		"This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the input messages.", maxModelLen, promptTokens)
}

// TooManyMinTokens returns the answer to a min_tokens above the limit of tokens.
func TooManyMinTokens(maxTokens, minTokens int) *Error {
	return Errorf(400, "min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", maxTokens,
		minTokens)
}

// OutputTooLong returns the answer to a max_tokens that does not fit after the prompt.
func OutputTooLong(maxModelLen, maxTokens, promptTokens int) *Error {
	return Errorf(400, "max_tokens",
		"'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens "+
			"and your request has %d input tokens (%d > %d - %d).", maxTokens, maxModelLen, promptTokens, maxTokens,
		maxModelLen, promptTokens)
}

// AppendError appends the error's JSON body.
func AppendError(b []byte, e *Error) []byte { return Fill(b, `{"error":$}`, ErrorInfo(e)) }

// AppendStreamError appends the SSE event that reports an error inside a stream whose status has been sent.
func AppendStreamError(b []byte, e *Error) []byte {
	return Fill(b, `data: {"error":$}`+"\n\n", ErrorInfo(e))
}

// ErrorInfo returns the object inside an error's body.
func ErrorInfo(e *Error) []byte {
	return Fill(nil, `{"message":$,"type":$,"param":$,"code":$}`, e.Message, e.Type, OrNull(e.Param), e.Status)
}
