package inputlog

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Format is the version of the log's lines. A log of another one is refused.
const Format = 1

// Header is what a picker is made of.
type Header struct {
	Format  int    `json:"format"`
	Version string `json:"windtunnel"` // that wrote it
	Picker  int    `json:"picker"`     // its number in this log
	// Pool is the pool that it picks for, and Replica what this one is called, where
	// there are several.
	Pool    string `json:"pool,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Config is the EndpointPickerConfig's text, nil for the default one, and Name
	// what errors call it.
	Config *string `json:"config"`
	Name   string  `json:"name"`
	// The picker's options (picker.Options, epp.Config).
	Seed              uint64       `json:"seed"`
	AllowExperimental bool         `json:"allowExperimental,omitempty"`
	IgnoreSubset      bool         `json:"ignoreSubset,omitempty"`
	Detail            bool         `json:"detail,omitempty"`
	Predictor         bool         `json:"predictor,omitempty"` // there was one to ask
	ScrapeInterval    machine.Time `json:"scrapeInterval"`
	// Bodies says that requests have their bodies.
	Bodies bool `json:"bodies,omitempty"`
}

// line is any line of a log. Exactly one field is there.
type line struct {
	Log      *Header   `json:"log,omitempty"`
	Snapshot *snapshot `json:"snapshot,omitempty"`
	Input    *input    `json:"input,omitempty"`
	Effect   *effect   `json:"effect,omitempty"` // which is only written
	Gap      *gap      `json:"gap,omitempty"`
}

type snapshot struct {
	Picker int        `json:"picker,omitempty"`
	State  *epp.State `json:"state"`
}

// gap says that lines of all pickers are missing.
type gap struct {
	Lines int64  `json:"lines"`
	Why   string `json:"why"`
}

// stamp is what inputs and effects begin with.
type stamp struct {
	Picker  int          `json:"picker,omitempty"`
	At      machine.Time `json:"at"`
	Request uint64       `json:"request,omitempty"` // 0 where it is about none
}

// input is a message. Exactly one of the fields behind stamp is there.
type input struct {
	stamp
	Arrive      *arrival   `json:"arrive,omitempty"`
	Answered    []answer   `json:"answered,omitzero"`
	Leave       *struct{}  `json:"leave,omitempty"`
	Headers     *response  `json:"headers,omitempty"`
	Piece       *progress  `json:"piece,omitempty"`
	Done        *done      `json:"done,omitempty"`
	Endpoints   []endpoint `json:"endpoints,omitzero"`
	Objects     *selection `json:"objects,omitempty"`
	Scraped     *scraped   `json:"scraped,omitempty"`
	KVEvents    *kvEvents  `json:"kvEvents,omitempty"`
	KVLost      *kvLost    `json:"kvLost,omitempty"`
	LoseIndexes *struct{}  `json:"loseIndexes,omitempty"`
	Shutdown    *struct{}  `json:"shutdown,omitempty"`
}
