package record

// Explanation is the detail of EndpointPicked that holds the whole decision, an
// object, for windtunnel explain. Views for people leave it out: it is a page,
// not a word.
const Explanation = "explanation"

// Selective is a Recorder that does not keep every detail. Explanations of a
// million requests take longer to write than to play the requests.
type Selective interface {
	Recorder
	// Explained is how many endpoints of each list the recorder keeps in that
	// detail: 0 for nothing at all.
	Explained() int
	// Detailed says whether it reads the details that only people read: what came
	// of a request, and what a summary counts, it is told without.
	Detailed() bool
}

// DefaultExplained is how many endpoints of each list the record of a decision
// has where nobody asks for more.
const DefaultExplained = 32

// Explained is how many endpoints of a decision r keeps: DefaultExplained where
// it does not say.
func Explained(r Recorder) int {
	if s, ok := r.(Selective); ok {
		return s.Explained()
	}
	if r == nil {
		return 0
	}
	return DefaultExplained
}

// Detailed says whether r reads the details that only people read. Who does not
// say reads them.
func Detailed(r Recorder) bool {
	s, selects := r.(Selective)
	return r != nil && (!selects || s.Detailed())
}
