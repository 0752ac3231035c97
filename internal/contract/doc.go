// Package contract checks every machine of the core against the contract in core/machine. Its tests list the
// machines, each with a function that makes one and draws messages for it. They send the same random messages to
// several equal machines, which are woken in different ways, and compare the effects. A new machine needs one
// function and one line; internal/archtest finds a machine that is missing.
package contract
