package kvcodec

import "cmp"

// Limits bound what a decoder takes from outside. The zero value means the
// defaults.
type Limits struct {
	PayloadBytes int // of one message; default 64 MiB
	Events       int // per message; default 65,536
	Blocks       int // hashes per event; default 262,144
	Tokens       int // per event; default 16,777,216
	TextBytes    int // of one name, medium or salt; default 4,096
}

func (l Limits) orDefaults() Limits {
	l.PayloadBytes = cmp.Or(max(l.PayloadBytes, 0), 64<<20)
	l.Events = cmp.Or(max(l.Events, 0), 65536)
	l.Blocks = cmp.Or(max(l.Blocks, 0), 262144)
	l.Tokens = cmp.Or(max(l.Tokens, 0), 16<<20)
	l.TextBytes = cmp.Or(max(l.TextBytes, 0), 4096)
	return l
}
