// Package virtual measures runs in virtual time as users see them: the CPU time and the peak memory of a `windtunnel
// sim` process, including start-up.
package virtual
