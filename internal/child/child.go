// Package child starts programs that do not outlive windtunnel, and ends them with
// all that they have started.
package child
