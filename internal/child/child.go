// Package child ends programs that windtunnel has started, with all that they
// have started, and ties them to its own life.
package child
