package picker

import (
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// consumed are request headers that are not forwarded: they were for the picker, or concern a body that may have
// changed.
var consumed = map[string]bool{
	HeadersObjective[0]: true, HeadersObjective[1]: true,
	HeadersFairness[0]: true, HeadersFairness[1]: true,
	HeadersModelRewrite[0]: true, HeadersModelRewrite[1]: true,
	HeadersTTFT[0]: true, HeadersTTFT[1]: true,
	HeadersTPOT[0]: true, HeadersTPOT[1]: true,
	HeaderVideoFPS: true, HeaderVideoSeconds: true, HeaderVideoResolution: true,
	KeySubset: true, HeaderDestination: true, KeyServed: true, apierror.DroppedReasonHeader: true,
	"content-length": true,
}

// injectable are headers that control the sidecar. Only a decision may set them. The picker removes a client's headers
// of these names, since a client could otherwise choose its own prefiller.
var injectable = map[string]bool{HeaderPrefiller: true, HeaderEncoders: true, HeaderDataParallel: true,
	HeaderKVSource: true}

// RequestHeaders returns the header mutation of a scheduled request. set has destination, content-length, the plug-ins'
// headers, and the client's own headers again. remove lists the client's headers that must not reach the model server.
// A request without a body gets only its destination.
func (d *Decision) RequestHeaders(bodyBytes int) (set header.List, remove []string) {
	set = make(header.List, 0, 3+len(d.Set)+len(d.Request.Headers))
	set = append(set, header.Header{Name: HeaderDestination, Value: d.Destination()})
	if d.Request.HeaderOnly() {
		for _, h := range d.Request.Headers {
			if injectable[h.Name] {
				remove = append(remove, h.Name)
			}
		}
		return d.withRequestID(set), remove
	}
	if bodyBytes > 0 {
		set = append(set, header.Header{Name: "content-length", Value: strconv.Itoa(bodyBytes)})
	}
	set = append(set, d.Set...)
	ours := d.Set.Index()
	for _, h := range d.Request.Headers {
		switch {
		case consumed[h.Name], ours.Has(h.Name):
		case injectable[h.Name], slices.Contains(d.Drop, h.Name):
			remove = append(remove, h.Name)
		default:
			set = append(set, h)
		}
	}
	return d.withRequestID(set), remove
}

// withRequestID adds the picker's id to a request without one.
func (d *Decision) withRequestID(set header.List) header.List {
	if _, ok := d.Request.Headers.Lookup(HeaderRequestID); !ok {
		set = append(set, header.Header{Name: HeaderRequestID, Value: d.Request.ID})
	}
	return set
}

// Scores returns the destination profile's totals by "ip:port", for the dynamic metadata; nil if there are none to
// show.
func (d *Decision) Scores() map[string]float64 {
	r := d.PrimaryProfile()
	if d.HideScores || r == nil {
		return nil
	}
	m := make(map[string]float64, len(r.Left))
	for j, i := range r.Left {
		m[d.View.States[i].HostPort()] = r.Totals[j]
	}
	return m
}

// RequestID makes an x-request-id for request number n, which came without one.
func (p *Picker) RequestID(n uint64) string {
	d := machine.NewDraw(p.opt.Seed, "picker", "request-id", n)
	return d.UUID()
}

// apiPath returns the path that selects a body's parser: the request's, or the original path in a gateway's header.
func apiPath(h header.List) string {
	for _, name := range []string{":path", "x-original-path", "x-forwarded-path"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return parse.DefaultPath
}
