package objects

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Pod is a model server's pod.
type Pod struct {
	Meta
	IP string

	// Ready is the Ready condition; false for a pod that is being deleted. The phase does not matter.
	Ready bool
}

// The annotations that limit which of the pool's target ports a pod serves. The first, if present, overrides the
// second.
const (
	AnnotationActivePorts    = "llm-d.ai/active-ports"
	AnnotationActivePortsOld = "inference.networking.k8s.io/active-ports"
)

func readPod(v value, meta Meta) Pod {
	p := Pod{Meta: meta}
	status := v.Get("status").Mapping()
	p.IP = status.Get("podIP").Text()
	if p.IP != "" && !isAddress(p.IP) {
		status.Get("podIP").Fail(status.Get("podIP").Found(), "an IP address", "")
	}
	for _, c := range status.Get("conditions").List() {
		if c.Mapping().Get("type").Text() == "Ready" {
			p.Ready = c.Get("status").Text() == "True"
		}
	}
	if v.Get("metadata").Get("deletionTimestamp").Given() {
		p.Ready = false
	}
	return p
}

// isAddress reports whether a text is an IP address.
func isAddress(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// ports returns the indexes of the target ports that a pod serves.
func (p *Pod) ports(targets []int) (indexes []int) {
	text, limited := p.Annotations[AnnotationActivePorts]
	if !limited {
		text, limited = p.Annotations[AnnotationActivePortsOld]
	}
	var active []int
	for _, item := range strings.Split(text, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(item)); err == nil {
			active = append(active, n)
		}
	}
	for i, port := range targets {
		if !limited || slices.Contains(active, port) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}
