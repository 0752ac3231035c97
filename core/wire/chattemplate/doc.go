// Package chattemplate reads what a model brings for its prompts (tokenizer.json,
// tokenizer_config.json, chat_template.jinja) and writes conversations as
// prompts with the model's own chat template, as vLLM and transformers do.
//
// A template is Jinja in the dialect of transformers: blocks are trimmed, there
// are break and continue, raise_exception, strftime_now, tojson without escapes,
// and {% generation %}. What it uses beyond that is refused when it is read, with
// its line. Rendering is bounded in work and in length, whoever wrote the
// conversation.
package chattemplate
