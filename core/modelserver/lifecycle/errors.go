package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Rejection returns the error for a request that the engine did not take, from a live and from a virtual server. model
// is the model that the request asked for.
func Rejection(code engine.Code, model string) *openai.Error {
	switch code {
	case engine.CodeUnknownAdapter:
		return openai.UnknownModel(model)
	case engine.CodeAsleep:
		return openai.Errorf(503, "", "The engine is asleep. Wake it with POST /wake_up.")
	case engine.CodeDraining:
		return openai.Errorf(503, "", "The server is shutting down and takes no new requests.")
	case engine.CodeDead:
		return openai.Errorf(503, "", "The engine is dead: it crashed or lost a rank.")
	case engine.CodeFull:
		return openai.Errorf(429, "", "Too many requests are waiting.")
	case engine.CodeTooLong:
		return openai.Errorf(400, "input_tokens", "The prompt is longer than the model's context.")
	}
	return openai.Errorf(400, "", "The engine does not take a request of these lengths.")
}

// Failure returns the error for a request that the engine ends early.
func Failure(r engine.Reason) (status int, text string) {
	switch r {
	case engine.ReasonKVFailed:
		return 500, "The KV cache of the prompt could not be fetched from the prefill server."
	case engine.ReasonSleep:
		return 503, "The engine was put to sleep."
	}
	return 500, "The engine died."
}
