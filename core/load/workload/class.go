package workload

import "github.com/windtunnel/windtunnel/core/machine"

// Class is a kind of traffic: a part of all conversations with a configuration of its own.
type Class struct {
	Share float64
	// Config makes the class's requests. The workload determines their arrivals and their number. Config.Class is the
	// class's name in records.
	Config *Config
}

// class returns the configuration of the conversation with this number.
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
