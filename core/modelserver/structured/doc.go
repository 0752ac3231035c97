// Package structured makes text of a given form up: what vLLM calls structured
// outputs. A form is a JSON schema, a regular expression, a list of choices or a
// grammar (EBNF as xgrammar and llama.cpp have it, or Lark); it is compiled
// once into a Grammar, which then writes any number of texts, each drawn from a
// seed, so that the same request says the same in every run.
//
// What a text says does not depend on how much of it will be told: one that is
// cut by max_tokens begins as the whole would. Where a form lets a text become
// as long as it likes, it takes the shortest way to its end once it is about as
// long as was asked for.
//
// Which forms are refused, and with which words, follows vLLM 0.33 with its
// default backend: vllm/v1/structured_output/backend_xgrammar.py, then
// backend_guidance.py where xgrammar cannot.
package structured
