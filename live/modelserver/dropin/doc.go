// Package dropin reads how people start the model servers that windtunnel
// stands in for, so that a command line, a container's arguments or a
// configuration file can be used as they are: vllm serve's flags, document
// 003's spellings and environment, and llm-d-inference-sim's flags and YAML.
//
// Flags that the simulation models act. All others are accepted, because a
// simulated server has no use for them, and named once in a warning.
package dropin
