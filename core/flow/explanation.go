package flow

// Explanation is the detail of EndpointPicked that holds the whole decision as
// JSON text, for windtunnel explain. Views for people leave it out: it is a
// page, not a word.
const Explanation = "explanation"

// Selective is a Recorder that does not keep every detail. Explanations of a
// million requests take longer to write than to play the requests.
type Selective interface {
	Recorder
	// KeepsExplanations tells whether the recorder keeps that detail.
	KeepsExplanations() bool
}

// KeepsExplanations tells whether r keeps explanations: every recorder does
// that does not say otherwise.
func KeepsExplanations(r Recorder) bool {
	if s, ok := r.(Selective); ok {
		return s.KeepsExplanations()
	}
	return r != nil
}
