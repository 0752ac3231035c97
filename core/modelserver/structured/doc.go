// Package structured generates texts of a given form: vLLM's structured outputs. A form is a JSON schema, a regular
// expression, a list of choices or a grammar (xgrammar's and llama.cpp's EBNF, or Lark). It is compiled once into a
// Grammar, which then writes any number of texts, each drawn from a seed, so that the same request generates the same
// text in every run.
//
// A text does not depend on how much of it the client sees: a text that max_tokens truncates begins as the whole text
// does. If a form allows texts of any length, the Grammar takes the shortest way to the end once the text has about the
// requested length.
//
// The forms that it refuses, and the texts of the errors, follow vLLM 0.33 with its default backend:
// vllm/v1/structured_output/backend_xgrammar.py, then backend_guidance.py for forms that xgrammar does not support.
package structured
