// Package datalayer has the plug-ins that read endpoints: sources of metrics,
// extractors for each engine, the scrapers of document 003, file discovery.
package datalayer

import "github.com/windtunnel/windtunnel/core/epp/picker"

// named is embedded by every plug-in here.
type named = picker.Base
