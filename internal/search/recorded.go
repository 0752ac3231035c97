package search

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
)

// Resend replaces the workload's requests by those of a recording, at the workload's rate if it has one. The settings
// are the scenario's; they have removed the fields that a recording replaces, and may have set them again, which is
// refused. It does not change the list, and returns notes about what the pools do not serve.
func Resend(s *scenario.Scenario, settings []scenario.Setting, list []workload.Recorded, from string) (notes []string,
	err error) {
	var o scenario.Overrides
	for _, x := range settings {
		field, _ := strings.CutPrefix(x.Path, "workload.")
		field, _, _ = strings.Cut(field, ".")
		switch {
		case field == x.Path || x.Value == "null" || !slices.Contains(scenario.BesideTrace(), field):
		case field == "rate":
			rate := s.Workload.Rate
			o.Rate = &rate
		case field == "requests":
			requests := s.Workload.Requests
			o.Requests = &requests
		default:
			return nil, exit.Errorf(exit.Usage, "%s: given beside %s; expected one of them: the recording says what "+
				"is sent, and when", x.Path, from)
		}
	}
	strangers := s.SendAgain(slices.Clone(list))
	for _, model := range slices.Sorted(maps.Keys(strangers)) {
		notes = append(notes, fmt.Sprintf("%s has %d requests for %.80q, which no pool serves: they ask for the "+
			"workload's model", from, strangers[model], model))
	}
	s.Workload.Trace.File = from
	return notes, exit.With(exit.Usage, s.Override(o))
}
