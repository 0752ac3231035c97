package record

// Explanation is the key of the detail of EndpointPicked that holds the whole decision as an object, for windtunnel
// explain. Views for people leave it out because of its length.
const Explanation = "explanation"

// Selective is a Recorder that does not keep every detail. Writing the explanations of a million requests takes longer
// than playing the requests.
type Selective interface {
	Recorder
	// Explained returns how many endpoints of each list the recorder keeps in that detail; 0 keeps no explanation.
	Explained() int
	// Detailed reports whether the recorder reads the details that only people read. It gets outcomes, and what a
	// summary counts, in either case.
	Detailed() bool
}

// DefaultExplained is how many endpoints of each list the record of a decision has by default.
const DefaultExplained = 32

// Explained returns how many endpoints of a decision r keeps: DefaultExplained unless r is Selective, 0 for nil.
func Explained(r Recorder) int {
	if s, ok := r.(Selective); ok {
		return s.Explained()
	}
	if r == nil {
		return 0
	}
	return DefaultExplained
}

// Detailed reports whether r reads the details that only people read. A recorder that is not Selective does.
func Detailed(r Recorder) bool {
	s, selects := r.(Selective)
	return r != nil && (!selects || s.Detailed())
}
