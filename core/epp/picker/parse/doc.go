// Package parse reads request and response bodies for the endpoint picker:
// which API, which model, what the prompt is, whether it streams, how many
// tokens it used. Parsers are those of llm-d-router v0.10 and of document 004 (docs/documents.md):
// openai-parser, anthropic-parser, vllmhttp-parser, vllmgrpc-parser, vertexai-parser and
// passthrough-parser, chosen by the end of the request's path.
//
// A parser never changes a body. RewriteModel replaces the model's name in
// place and leaves every other byte as the client sent it, so big integers,
// key order and spacing survive (the real EPP re-marshals; docs/parity.md).
package parse
