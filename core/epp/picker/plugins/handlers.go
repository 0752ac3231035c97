package plugins

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// single is single-profile-handler: the one profile there is.
type single struct{ named }

// CheckProfiles refuses more than one profile.
func (h *single) CheckProfiles(names []string) error {
	if len(names) > 1 {
		return fmt.Errorf("SingleProfileHandler cannot support multiple scheduling profiles, got %v", names)
	}
	return nil
}

// Schedule runs the profile.
func (h *single) Schedule(c *picker.Cycle) error {
	name := c.Profiles()[0]
	if !c.Run(name).Ok() {
		return fmt.Errorf("failed to run scheduler profile '%s'", name)
	}
	c.SetPrimary(name)
	return nil
}

// dataParallel is data-parallel-profile-handler: the request goes to the
// primary port of the chosen endpoint's address, and a header names the rank
// that was chosen. Deprecated upstream.
type dataParallel struct {
	named
	PrimaryPort int `json:"primaryPort" min:"0" max:"65535"`
}

var newDataParallel = picker.Of(dataParallel{named{}, 8000})

// Complete implements picker.Completer.
func (h *dataParallel) Complete(b *picker.Builder, name string) {
	b.Warn("plugin %s: data-parallel-profile-handler is deprecated", name)
}

// Schedule runs the profile and redirects to the primary port.
func (h *dataParallel) Schedule(c *picker.Cycle) error {
	names := c.Profiles()
	if len(names) != 1 {
		return noProfile(c)
	}
	if !c.Run(names[0]).Ok() {
		return fmt.Errorf("failed to run scheduler profile '%s'", names[0])
	}
	c.SetPrimary(names[0])
	redirect(c, h.PrimaryPort)
	return nil
}

// noProfile returns the error of a handler that lacks the profile to run.
func noProfile(c *picker.Cycle) error {
	return fmt.Errorf("failed to run any scheduler profile for request %s", c.Request.ID)
}

// redirect sends the request to another port of the chosen endpoints and says
// in a header which was meant.
func redirect(c *picker.Cycle, port int) {
	d := c.Decision
	for n, i := range d.PrimaryProfile().Picked {
		s := c.State(i)
		if n == 0 {
			d.SetHeader(picker.HeaderDataParallel, s.HostPort())
		}
		moved := picker.NewEndpoint(s.Namespace, s.Name, s.Address, strconv.Itoa(port), s.Labels)
		d.Targets = append(d.Targets, picker.Target{Endpoint: s.Endpoint, HostPort: moved.HostPort()})
	}
	d.HideScores = true
}

// headerProfile is header-profile-handler: the profile that a request header
// names.
type headerProfile struct {
	named
	HeaderName     string `json:"headerName"`
	DefaultProfile string `json:"defaultProfile"`
}

// Complete implements picker.Completer.
func (h *headerProfile) Complete(_ *picker.Builder, _ string) {
	h.HeaderName = cmp.Or(strings.ToLower(strings.TrimSpace(h.HeaderName)), picker.HeaderProfile)
	h.DefaultProfile = cmp.Or(strings.TrimSpace(h.DefaultProfile), "decode")
}

// Schedule runs the named profile; if there is but one, that one.
func (h *headerProfile) Schedule(c *picker.Cycle) error {
	name := cmp.Or(strings.TrimSpace(c.Request.Headers.Get(h.HeaderName)), h.DefaultProfile)
	if names := c.Profiles(); len(names) == 1 {
		name = names[0]
	}
	r := c.Run(name)
	if r == nil {
		return noProfile(c)
	}
	if !r.Ok() {
		return fmt.Errorf("failed to run scheduler profile '%s'", name)
	}
	c.SetPrimary(name)
	return nil
}
