// Package stats counts the events at a model server and writes them as metrics: vLLM's own and those that document 003
// (docs/documents.md) names (docs/modelserver.md).
//
// Stats processes every effect of the server's engine. Look is a view of the server at one time. Its Write writes all
// families to a metrics.Writer, for a page of text or for samples without text. Both are pure: wall and virtual time
// count and write the same.
package stats
