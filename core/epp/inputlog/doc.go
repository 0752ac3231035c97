// Package inputlog records the inputs and effects of an endpoint picker (core/epp's Machine), and plays them again.
//
// A log is lines of JSON, which stand in a recording beside the flow events:
//
//	{"log": …}       the picker's parts and options, and the format's version
//	{"snapshot": …}  the picker's state, from which on the log is complete
//	{"input": …}     a message that entered, with its time in nanoseconds
//	{"effect": …}    an effect of the picker; all but scrapes
//	{"gap": …}       lines are missing: nothing can be played until the next snapshot
//	{"piece": …}     a part of a line that is too long for one
//
// Several pickers may write into one file, as when a configuration is replaced while requests of the old one are under
// way; each has a number. A file that continues another one begins with log and snapshot again.
//
// A request is written as a description: its headers, the fields of its body and, for each prompt, its length, hashes
// of its beginnings and keys of KV blocks, but neither text nor token ids (Options.Bodies adds them). Credentials are
// never written: see Hidden. A metrics page is written as the changes since the last one of its endpoint.
//
// Log writes, Player plays. Playing gives the same effects, to the letter of their lines. So each difference is a
// difference of the pickers: another version, another configuration, a plug-in that answers differently.
package inputlog
