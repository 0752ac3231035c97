package kv

import "slices"

// Kind is the type of an Event.
type Kind uint8

// The kinds of events. vLLM's name comes first, document 003's second.
const (
	Stored    Kind = iota + 1 // BlockStored, BLOCK_CREATED
	Removed                   // BlockRemoved, BLOCK_EVICTED
	Cleared                   // AllBlocksCleared; the document has none
	Updated                   // BLOCK_UPDATED: metadata of a held block changed
	Heartbeat                 // HEARTBEAT: the pod lives; windtunnel's own, as the document names only last_heartbeat
)

var kindNames = [...]string{"", "BlockStored", "BlockRemoved", "AllBlocksCleared", "BlockUpdated", "Heartbeat"}

var documentNames = [...]string{"", "BLOCK_CREATED", "BLOCK_EVICTED", "ALL_BLOCKS_CLEARED", "BLOCK_UPDATED",
	"HEARTBEAT"}

// String returns vLLM's name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Document returns document 003's name of the kind, as in event_type and in the metric
// kv_cache_manager_events_received_total.
func (k Kind) Document() string {
	if int(k) < len(documentNames) {
		return documentNames[k]
	}
	return "UNKNOWN"
}

// DocumentKind returns the kind that document 003 calls so; 0 for none.
func DocumentKind(name string) Kind {
	return Kind(max(0, slices.Index(documentNames[:], name)))
}

// NoGroup is the Group of an event that names none.
const NoGroup = -1

// The media that a block can live on. Names are compared without case; any
// other name is a tier of its own.
const (
	MediumGPU = "gpu" // also what a missing medium means
	MediumCPU = "cpu"
	AnyMedium = "*" // of a JSON BLOCK_EVICTED that names none: the block is gone from everywhere
)

// Event is one event of a model server's KV cache. Fields that its kind does not use are zero. The tags are the fields'
// names in the log of inputs (core/epp/inputlog).
type Event struct {
	Kind Kind `json:"kind"`

	// Stored and Removed.
	Hashes []EngineHash `json:"-"`      // one per engine block
	Medium string       `json:"medium"` // lower case; MediumGPU unless the event named another
	Group  int          `json:"-"`      // KV cache group, NoGroup if none was named

	// Stored.
	Parent        EngineHash `json:"-"`      // of the first block; 0 means the prompt begins here
	Tokens        []uint32   `json:"-"`      // of all blocks together
	BlockTokens   int        `json:"block"`  // the engine's block size, as declared
	LoRAID        int64      `json:"-"`      // informative; LoRAName decides
	LoRAName      string     `json:"lora"`   // replaces the model in the key when not empty
	ExtraKeys     [][]string `json:"-"`      // per engine block: cache salt, image hashes
	SpecKind      string     `json:"spec"`   // full_attention, sliding_window, mamba …; "" means unchanged
	SlidingWindow int        `json:"window"` // tokens, for SpecKind sliding_window

	// Stored, from a log that keeps no tokens: their number, and the keys that an index of the same Hasher made of
	// them.
	TokenCount int   `json:"tokens"`
	Keys       []Key `json:"-"`

	// Document 003's JSON only.
	Pod        string  `json:"pod"`        // pod_id; "" means the topic's pod
	Name       string  `json:"name"`       // block_hash as it was written
	Model      string  `json:"model"`      // "" means the topic's model
	ByName     bool    `json:"byName"`     // no tokens: the block is known by its hash alone
	At         float64 `json:"-"`          // Unix time in seconds, 0 if not given
	LayerID    int     `json:"-"`          // layers of one block are one block
	BlockBytes int64   `json:"blockBytes"` // cache_size_bytes
	Capacity   int     `json:"capacity"`   // Heartbeat: the pod's num_gpu_blocks, 0 if not given
}

// NumTokens returns how many tokens the event's blocks have together.
func (e *Event) NumTokens() int { return max(len(e.Tokens), e.TokenCount) }

// FullAttention reports whether holding blocks of a KV cache group of this kind
// lets a prompt skip their computation. Those of sliding-window and state-space
// groups do not: llm-d-router gives no score for them alone.
func FullAttention(specKind string) bool {
	return specKind == "full_attention" || specKind == "mla_attention" || specKind == "sink_full_attention"
}

// Batch is one message of a publisher.
type Batch struct {
	At               float64 // Unix time in seconds; vLLM's ts
	Events           []Event
	DataParallelRank int // -1 if none; the index ignores it, as the real one does
}
