// Package contract holds every machine of the core against what core/machine
// promises of it. Its tests list the machines, each with a way to make one and to
// draw messages for it, play the same random messages to several of its kind,
// woken each in another way, and compare what they say. A new machine is one
// function and one line; internal/archtest finds one that has none.
package contract
