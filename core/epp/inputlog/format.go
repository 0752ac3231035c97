package inputlog

import (
	"encoding/json"

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
	Log      *Header   `json:"log"`
	Snapshot *snapshot `json:"snapshot"`
	Input    *input    `json:"input"`
	Effect   *effect   `json:"effect"`
	Gap      *gap      `json:"gap"`
}

type snapshot struct {
	Picker int        `json:"picker"`
	State  *epp.State `json:"state"`
}

// gap says that lines of all pickers are missing.
type gap struct {
	Lines int64  `json:"lines"`
	Why   string `json:"why"`
}

// input is a message. Exactly one of the fields behind Request is there.
type input struct {
	Picker   int          `json:"picker"`
	At       machine.Time `json:"at"`
	Request  uint64       `json:"request"`
	Arrive   *request     `json:"arrive"`
	Answered []answer     `json:"answered"`
	Leave    *struct{}    `json:"leave"`
	Headers  *response    `json:"headers"`
	Piece    *progress    `json:"piece"`
	Done     *done        `json:"done"`

	Endpoints   []endpoint `json:"endpoints"`
	Objects     *selection `json:"objects"`
	Scraped     *scraped   `json:"scraped"`
	KVEvents    *kvEvents  `json:"kvEvents"`
	KVLost      *kvLost    `json:"kvLost"`
	LoseIndexes *struct{}  `json:"loseIndexes"`
	Shutdown    *struct{}  `json:"shutdown"`
}

// effect is what came of messages. Which fields there are depends on its kind;
// Player compares lines, and looks into them for names.
type effect struct {
	Picker  int             `json:"picker"`
	At      machine.Time    `json:"at"`
	Request uint64          `json:"request"`
	Kind    string          `json:"kind"`
	What    json.RawMessage `json:"what"`
}
