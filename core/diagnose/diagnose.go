// Package diagnose walks the decision trees of document 003's troubleshooting guide. Figures of a run, of a cluster or
// of manifests go in, and findings come out: a leaf of a tree with its evidence, its remedies and how sure it is. A leaf
// is a finding only where there is a symptom: an objective is missed, or requests fail. Begin with Of.
package diagnose

// Name is a figure's name.
type Name string

// Figure is a measured value.
type Figure struct {
	Name  Name    `json:"figure"`
	Value float64 `json:"value"`
	// Where is the part that was measured: servers, a pool, an endpoint. It is empty for all together.
	Where string `json:"where,omitempty"`
	// When is the moment or the stretch of the value in words, such as "at 12.5s"; empty for the whole run.
	When string `json:"when,omitempty"`
}

// Complaint is what a part said: the reason of a refusal, of a failed transfer, or a mistake in a file.
type Complaint struct {
	// Text is the part's own words, or a step of core/record with its hop.
	Text string `json:"text"`
	// Count is how often it was said. It is 0 for a mistake in a file, which is certain.
	Count int    `json:"count,omitempty"`
	When  string `json:"when,omitempty"`
}

// Facts are all that is known of a run, a cluster or manifests. Missing figures are unknown.
type Facts struct {
	// Requests is how many requests the figures count.
	Requests   int
	Figures    []Figure
	Complaints []Complaint
	// Conversational says that requests continue earlier ones. Sidecars says that prefill and decode are apart.
	Conversational, Disaggregated bool
}

// Certainty is how sure a finding is.
type Certainty string

// The certainties.
const (
	Certain  Certainty = "certain"
	Likely   Certainty = "likely"
	Possible Certainty = "possible"
)

// Finding is a leaf that explains a symptom.
type Finding struct {
	Leaf   Leaf   `json:"leaf"`
	Branch Branch `json:"branch"`
	// Cause is a sentence, and Source the place of the leaf in the documents.
	Cause  string `json:"cause"`
	Source string `json:"source"`
	// Evidence are the figures and complaints that lead to the leaf, in words with units, thresholds and sources.
	Evidence []string `json:"evidence"`
	Remedies []string `json:"remedies"`
	// Sure is how sure the finding is, and Why is how that was decided.
	Sure Certainty `json:"sure"`
	Why  string    `json:"why"`
	// Tried are the remedies that were played, by callers that have a scenario.
	Tried []Trial `json:"tried,omitempty"`
}

// Trial is a remedy that was played from the same seed.
type Trial struct {
	// Remedy is the change, as fields of the scenario, and Effect what it changes, in words with figures.
	Remedy string `json:"remedy"`
	Effect string `json:"effect"`
	// Helps says that the symptom goes, or becomes clearly smaller.
	Helps bool `json:"helps"`
}

// Diagnosis is the result of walking all trees.
type Diagnosis struct {
	// Symptoms say what is wrong, in words with figures. Without any, there are no findings.
	Symptoms []string `json:"symptoms"`
	// Walk are the checks of the tree of high latency, in its order.
	Walk     []string  `json:"walk,omitempty"`
	Findings []Finding `json:"findings"`
	// Notes are thresholds that are crossed without a symptom, and figures that are missing.
	Notes []string `json:"notes,omitempty"`
}

// Leaf returns the finding of a leaf, nil without one.
func (d *Diagnosis) Leaf(l Leaf) *Finding {
	for i := range d.Findings {
		if d.Findings[i].Leaf == l {
			return &d.Findings[i]
		}
	}
	return nil
}
