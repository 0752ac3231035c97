// Package clients holds the tests that drive the model server with the clients
// that people use: OpenAI's and Anthropic's own for Python and for Node, and
// LangChain, at pinned versions.
//
// The scripts under testdata do what an application does and say line by line
// what held; the Go test starts a server, fetches the clients once into the
// user's cache and reads the lines. Without Python, Node or a package registry
// the tests are skipped and say what is missing; in CI (CI=true) they fail.
package clients
