package report

// Pool is a pool of model servers, so that the summary also tells of those that get
// nothing.
type Pool struct {
	Name   string
	Groups []Group
}

// Group is some of a pool's servers that are alike.
type Group struct {
	Name string
	// Prefill says that they only prefill.
	Prefill   bool
	Endpoints []string
}

// Pools says which pools the run has.
func (s *Session) Pools(list []Pool) {
	var endpoints, prefill []string
	for i := range list {
		for _, g := range list[i].Groups {
			if g.Prefill {
				prefill = append(prefill, g.Endpoints...)
			} else {
				endpoints = append(endpoints, g.Endpoints...)
			}
		}
	}
	s.servers(endpoints, prefill)
}
