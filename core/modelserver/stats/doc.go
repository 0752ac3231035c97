// Package stats counts what happens at a model server and tells it as metrics:
// vLLM's own and those that document 003 (docs/documents.md) names (docs/modelserver.md).
//
// Stats hears every effect of the server's engine. Look is what can be said of
// the server at one moment; its Write tells all families to a metrics.Writer,
// for a page of text or for samples without text. Both are pure: wall and
// virtual time count and tell the same.
package stats
