package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// prefixDecider is prefix-based-pd-decider: prefill on its own endpoint when
// at least nonCachedTokens of the prompt are not cached on the decode
// endpoint. nonCachedTokens 0 means never.
//
// It has no parameter for the producer: it reads the matches of the one that is
// called approx-prefix-cache-producer, and has one made where none is. A
// precise-prefix-cache-producer of that name serves it.
type prefixDecider struct {
	named
	NonCached    int `json:"nonCachedTokens" min:"0"`
	PromptTokens int `json:"promptTokens" min:"0"`

	source dataproducer.PrefixSource
}

// Complete implements picker.Completer.
func (d *prefixDecider) Complete(b *picker.Builder, name string) {
	dataproducer.FindPrefix(b, "", name, &d.source)
}

// Disaggregate compares what is not cached with the threshold.
func (d *prefixDecider) Disaggregate(c *picker.Cycle, decode int32) bool {
	n := c.Request.Tokens
	if d.NonCached == 0 || decode < 0 || n < d.NonCached || d.PromptTokens > 0 && n < d.PromptTokens {
		return false
	}
	m := d.source.Match(c)
	return n-int(m.Cached(c.State(decode)))*m.BlockTokens >= d.NonCached
}

// alwaysPD is always-disagg-pd-decider.
type alwaysPD struct{ named }

// Disaggregate always does.
func (d *alwaysPD) Disaggregate(*picker.Cycle, int32) bool { return true }

// alwaysMM is always-disagg-multimodal-decider: requests with images, audio
// or video.
type alwaysMM struct{ named }

// Disaggregate looks for parts that need encoding.
func (d *alwaysMM) Disaggregate(c *picker.Cycle, _ int32) bool {
	return c.Request.Body != nil && c.Request.Body.Multimodal > 0
}

// newTokenDecider is the decider of document 003's pd-profile-handler: new
// tokens beyond the cached ones, more than 10.
type newTokenDecider struct {
	named
	Threshold int `json:"threshold" min:"0"`

	source dataproducer.PrefixSource
}

var newNewTokenDecider = picker.Of(newTokenDecider{Threshold: 10})

// Complete implements picker.Completer.
func (d *newTokenDecider) Complete(b *picker.Builder, name string) {
	dataproducer.FindPrefix(b, "", name, &d.source)
}

// Disaggregate counts what is new.
func (d *newTokenDecider) Disaggregate(c *picker.Cycle, decode int32) bool {
	if decode < 0 {
		return true
	}
	m := d.source.Match(c)
	return c.Request.Tokens-int(m.Of(c.State(decode)))*m.BlockTokens > d.Threshold
}
