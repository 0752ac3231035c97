// Package chattemplate reads the files of a model that determine its prompts (tokenizer.json, tokenizer_config.json,
// chat_template.jinja). It writes conversations as prompts with the model's own chat template, as vLLM and transformers
// do.
//
// A template is Jinja in the dialect of transformers: blocks are trimmed, and there are break and continue,
// raise_exception, strftime_now, tojson without escapes, and {% generation %}. Parse refuses everything else with its
// line. Rendering is limited in work and in length, whatever the conversation.
package chattemplate
