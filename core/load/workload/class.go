package workload

import "github.com/windtunnel/windtunnel/core/machine"

// Class is a kind of traffic: a part of all conversations that is made in a way
// of its own.
type Class struct {
	Share float64
	// Config makes the class's requests; when they arrive, and how many there are, is
	// that of the workload. Its Class is the name that records have.
	Config *Config
}

// class is what makes the conversation with this number.
func (c *Config) class(index int) *Config {
	if len(c.Classes) == 0 {
		return c
	}
	d := machine.NewDraw(c.Seed, "client", "class", uint64(index))
	at := d.Float64()
	for _, x := range c.Classes {
		if at -= x.Share; at < 0 {
			return x.Config
		}
	}
	return c.Classes[len(c.Classes)-1].Config // rounding
}
