// Package dropin reads the flags, variables and configuration files of the model servers that windtunnel stands in for:
// vllm serve's flags, document 003's spellings and environment, SGLang's flags, and llm-d-inference-sim's flags and
// YAML. A command line, a container's arguments or a configuration file works without changes.
//
// Flags that the simulation models have an effect. The package accepts all other flags, because a simulated server has
// no use for them, and one warning names each of them once.
package dropin
