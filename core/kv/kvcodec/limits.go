package kvcodec

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
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.PayloadBytes, 64<<20)
	set(&l.Events, 65536)
	set(&l.Blocks, 262144)
	set(&l.Tokens, 16<<20)
	set(&l.TextBytes, 4096)
	return l
}
