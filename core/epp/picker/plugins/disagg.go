package plugins

import (
	"cmp"
	"errors"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// Kinds of disaggregation, as in the label decision_type.
const (
	decodeOnly          = "decode-only"
	prefillDecode       = "prefill-decode"
	encodeDecode        = "encode-decode"
	encodePrefillDecode = "encode-prefill-decode"
)

// Decider decides whether a stage runs on an endpoint of its own, given the decode endpoint (an index of the View, -1
// while it is unknown).
type Decider interface {
	picker.Plugin
	Disaggregate(c *picker.Cycle, decode int32) bool
}

// disagg is disagg-profile-handler: decode first, then encode and prefill as
// their deciders say. The sidecar finds the others in headers.
type disagg struct {
	named
	decode, prefill, encode string
	prefillDecider          Decider
	encodeDecider           Decider
	prefillFirst            bool
}

// disaggParams has today's names and the older flat ones.
type disaggParams struct {
	StageOrder string `json:"stageOrder"`
	Profiles   struct {
		Decode  string `json:"decode"`
		Prefill string `json:"prefill"`
		Encode  string `json:"encode"`
	} `json:"profiles"`
	Deciders struct {
		Prefill string `json:"prefill"`
		Encode  string `json:"encode"`
	} `json:"deciders"`
	DecodeProfile  string `json:"decodeProfile"`
	PrefillProfile string `json:"prefillProfile"`
	EncodeProfile  string `json:"encodeProfile"`
	PrefillDecider string `json:"prefillDeciderPluginName"`
	EncodeDecider  string `json:"encodeDeciderPluginName"`
	DeciderName    string `json:"deciderPluginName"`
}

func newDisagg(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	var ps disaggParams
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	h := &disagg{decode: cmp.Or(ps.Profiles.Decode, ps.DecodeProfile, "decode"),
		prefill: cmp.Or(ps.Profiles.Prefill, ps.PrefillProfile, dataproducer.PrefillProfile),
		encode:  cmp.Or(ps.Profiles.Encode, ps.EncodeProfile, "encode")}
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(ps.StageOrder)) {
	case "", "decodefirst", "decode":
	case "prefillfirst", "prefill":
		h.prefillFirst = true
	default:
		return nil, p.At("stageOrder").Expected("decodeFirst or prefillFirst")
	}
	var err error
	if h.prefillDecider, err = decider(b, cmp.Or(ps.Deciders.Prefill, ps.PrefillDecider, ps.DeciderName), p,
		"deciders.prefill", "prefillDeciderPluginName", "deciderPluginName"); err != nil {
		return nil, err
	}
	h.encodeDecider, err = decider(b, cmp.Or(ps.Deciders.Encode, ps.EncodeDecider), p, "deciders.encode",
		"encodeDeciderPluginName")
	dataproducer.EnsurePrefix(b, name)
	return h, err
}

// decider returns the plug-in of this name, which one of these parameters has.
func decider(b *picker.Builder, name string, p picker.Params, fields ...string) (Decider, error) {
	if name == "" {
		return nil, nil
	}
	at := p.At(fields[0])
	for _, f := range fields[1:] {
		if !at.Given() {
			at = p.At(f)
		}
	}
	pl, err := at.Plugin(b, name)
	if err != nil {
		return nil, err
	}
	d, ok := pl.(Decider)
	if !ok {
		return nil, at.Expected("the name of a decider, such as prefix-based-pd-decider")
	}
	return d, nil
}

// Schedule runs the stages.
func (h *disagg) Schedule(c *picker.Cycle) error {
	if !c.HasProfile(h.decode) && !(h.prefillFirst && (c.HasProfile(h.prefill) || c.HasProfile(h.encode))) {
		return noProfile(c)
	}
	failed := errors.New("failed to find available decode workers")
	encoded, prefilled := false, false
	stage := func(name string, d Decider, decode int32) bool {
		return c.HasProfile(name) && d != nil && d.Disaggregate(c, decode) && c.Run(name).Ok()
	}
	if h.prefillFirst {
		peer := int32(-1)
		if c.HasProfile(h.prefill) {
			if r := c.Run(h.prefill); r.Ok() {
				prefilled, peer = true, r.Picked[0]
			}
		}
		encoded = stage(h.encode, h.encodeDecider, -1)
		c.SetPeer(peer)
		if !c.Run(h.decode).Ok() {
			return failed
		}
	} else {
		r := c.Run(h.decode)
		if !r.Ok() {
			return failed
		}
		decode := r.Picked[0]
		encoded = stage(h.encode, h.encodeDecider, decode)
		c.SetPeer(decode)
		prefilled = stage(h.prefill, h.prefillDecider, decode)
	}
	c.SetPrimary(h.decode)
	d := c.Decision
	d.DisaggBy = h
	switch {
	case encoded && prefilled:
		d.Disagg = encodePrefillDecode
	case encoded:
		d.Disagg = encodeDecode
	case prefilled:
		d.Disagg = prefillDecode
	default:
		d.Disagg = decodeOnly
	}
	return nil
}

// PreRequest names the endpoints for prefill and encode to the sidecar.
func (h *disagg) PreRequest(c *picker.Cycle) { disaggHeadersOf(c, h.prefill, h.encode) }

func disaggHeadersOf(c *picker.Cycle, prefill, encode string) {
	d := c.Decision
	if r := d.Profile(prefill); r.Ok() {
		d.SetHeader(picker.HeaderPrefiller, c.State(r.Picked[0]).HostPort())
	}
	if r := d.Profile(encode); r.Ok() {
		var hosts []string
		for _, i := range r.Picked {
			hosts = append(hosts, c.State(i).HostPort())
		}
		d.SetHeader(picker.HeaderEncoders, strings.Join(hosts, ","))
	}
}

// disaggHeaders is disagg-headers-handler (older: prefill-header-handler): the
// headers alone, for handlers that do not write them. Deprecated.
type disaggHeaders struct {
	named
	Prefill string `json:"prefillProfile"`
	Encode  string `json:"encodeProfile"`
}

var newDisaggHeaders = picker.Of(disaggHeaders{Prefill: dataproducer.PrefillProfile, Encode: "encode"})

// PreRequest writes the headers.
func (h *disaggHeaders) PreRequest(c *picker.Cycle) {
	if c.Decision.DisaggBy != nil {
		if _, ok := c.Decision.DisaggBy.(*disagg); ok {
			return // it wrote them already
		}
	}
	disaggHeadersOf(c, h.Prefill, h.Encode)
}

// pd is pd-profile-handler, the older form of disagg. Deprecated; document
// 003 uses it.
type pd struct {
	named
	DecodeProfile  string `json:"decodeProfile"`
	PrefillProfile string `json:"prefillProfile"`
	PrimaryPort    int    `json:"primaryPort" min:"0" max:"65535"`
	DeciderName    string `json:"deciderPluginName"`
	PrefixType     string `json:"prefixPluginType"`
	PrefixName     string `json:"prefixPluginName"`
	Prefix         string `json:"prefixMatchInfoProducerName"`
	HashBlockSize  int    `json:"hashBlockSize"`
	Threshold      int    `json:"threshold" min:"0"`

	decider Decider
	source  dataproducer.PrefixSource
}

var newPD = picker.Of(pd{DecodeProfile: "decode", PrefillProfile: dataproducer.PrefillProfile,
	DeciderName: "prefix-based-pd-decider"})

// Configure implements picker.Configurer.
func (h *pd) Configure(b *picker.Builder, name string, p picker.Params) (err error) {
	if h.DeciderName == "" {
		return p.At("deciderPluginName").Expected("the name of a decider")
	}
	if h.Threshold > 0 && !p.At("deciderPluginName").Given() { // document 003: no decider of its own
		d := &prefixDecider{named: picker.NewBase("prefix-based-pd-decider", name), NonCached: h.Threshold}
		dataproducer.FindPrefix(b, h.Prefix, name, &d.source)
		h.decider = d
		return nil
	}
	dataproducer.FindPrefix(b, h.Prefix, name, &h.source)
	h.decider, err = decider(b, h.DeciderName, p, "deciderPluginName")
	return err
}

// Schedule runs decode, and prefill if the decider says so.
func (h *pd) Schedule(c *picker.Cycle) error {
	r := c.Run(h.DecodeProfile)
	if !r.Ok() {
		return errors.New("failed to find available decode workers")
	}
	decode := r.Picked[0]
	d := c.Decision
	d.DisaggBy, d.Disagg = h, decodeOnly
	if c.HasProfile(h.PrefillProfile) && h.decider.Disaggregate(c, decode) {
		d.Disagg = prefillDecode
		c.Run(h.PrefillProfile)
	}
	c.SetPrimary(h.DecodeProfile)
	if h.PrimaryPort != 0 {
		redirect(c, h.PrimaryPort)
	}
	return nil
}
