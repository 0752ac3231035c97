// Package virtual measures runs in virtual time as a person has them: `windtunnel sim` in a
// process of its own, its CPU time and the most memory that it took, start-up included.
package virtual
