// Package parse reads request and response bodies for the endpoint picker: the API, the model, the prompt, whether the
// response streams, and the tokens that it used. The parsers are those of llm-d-router v0.10 and of document 004
// (docs/documents.md): openai-parser, anthropic-parser, vllmhttp-parser, vllmgrpc-parser, vertexai-parser and
// passthrough-parser. The end of the request's path chooses one.
//
// A parser never changes a body. RewriteModel replaces the model's name in place and leaves every other byte as the
// client sent it, so big integers, key order and spacing survive (the real EPP re-marshals; docs/parity.md).
package parse
