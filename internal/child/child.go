// Package child starts programs that end with windtunnel at the latest, and ends them together with everything that
// they started.
package child
