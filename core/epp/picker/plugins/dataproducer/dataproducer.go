// Package dataproducer has the plug-ins that work something out about a request
// for others to read: its tokens, how much of its prompt each endpoint holds, what
// is in flight there, how long it would take. Find… links a filter, a scorer or a
// handler to the producer that its parameters name.
package dataproducer

import "github.com/windtunnel/windtunnel/core/epp/picker"

// named is embedded by every plug-in here.
type named = picker.Base
