package inputlog

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Format is the version of the log's lines. A Player refuses a log of another one.
const Format = 1

// Header describes a picker's parts and options.
type Header struct {
	Format  int    `json:"format"`
	Version string `json:"windtunnel"` // the one that wrote the log
	Picker  int    `json:"picker"`     // its number in this log
	// Pool is the picker's pool, and Replica its name if there are several.
	Pool    string `json:"pool,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Config is the EndpointPickerConfig's text, nil for the default one; errors call it Name.
	Config *string `json:"config"`
	Name   string  `json:"name"`
	// The picker's options (picker.Options, epp.Config).
	Seed              uint64       `json:"seed"`
	AllowExperimental bool         `json:"allowExperimental,omitempty"`
	IgnoreSubset      bool         `json:"ignoreSubset,omitempty"`
	Readiness         bool         `json:"readiness,omitempty"`
	Detail            bool         `json:"detail,omitempty"`
	Predictor         bool         `json:"predictor,omitempty"` // the picker had one
	ScrapeInterval    machine.Time `json:"scrapeInterval"`
	// Bodies states that requests have their bodies.
	Bodies bool `json:"bodies,omitempty"`
}

// line is any line of a log. Exactly one field is set.
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

// gap marks missing lines of all pickers.
type gap struct {
	Lines int64  `json:"lines"`
	Why   string `json:"why"`
}

// input is a message. Exactly one of the fields behind Request is set.
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

	Endpoints   []*picker.Endpoint `json:"endpoints"`
	Objects     *selection         `json:"objects"`
	Scraped     *scraped           `json:"scraped"`
	KVEvents    *kvEvents          `json:"kvEvents"`
	KVLost      *epp.KVLost        `json:"kvLost"`
	LoseIndexes *struct{}          `json:"loseIndexes"`
	Shutdown    *struct{}          `json:"shutdown"`
}

// effect holds the fields of an effect that a Player reads. It compares the rest as text.
type effect struct {
	Picker  int          `json:"picker"`
	At      machine.Time `json:"at"`
	Request uint64       `json:"request"`
	Decided *struct{}    `json:"decided"`
}
