// Package clients holds the tests that drive the model server with the clients
// that people use: OpenAI's and Anthropic's own for Python and for Node,
// LangChain, LiteLLM and inference-perf with a Prometheus, at pinned versions;
// make test-clients runs all of them, also through whole stacks (plain, held,
// prefill and decode).
//
// The scripts under testdata act like an application and print a line for each check; the Go test starts a server,
// fetches the clients once into the user's cache and reads the lines. Without Python, Node or a package registry the
// tests are skipped and name the missing part; in CI (CI=true) they fail.
package clients
