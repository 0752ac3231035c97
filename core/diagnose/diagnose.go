// Package diagnose walks the decision trees of document 003's troubleshooting guide. Figures of a run, of a cluster or
// of manifests go in, and findings come out: a leaf of a tree with its evidence, its remedies and how sure it is. A
// leaf is a finding only where there is a symptom: an objective is missed, or requests fail. Begin with Of.
package diagnose

import "fmt"

// Complaint is a part's own report: the reason of a refusal, of a failed transfer, or a mistake in a file.
type Complaint struct {
	// Text is the part's own words, or a step of core/record with its hop.
	Text string `json:"text"`
	// Count is how often it was said. It is 0 for a mistake in a file, which is certain.
	Count int    `json:"count,omitempty"`
	When  string `json:"when,omitempty"`
}

// String returns words such as "12 times: the connection was closed (from 1.2s to 9s)".
func (c *Complaint) String() string {
	text := "once: "
	if c.Count != 1 {
		text = fmt.Sprintf("%d times: ", c.Count)
	}
	if text += c.Text; c.When != "" {
		text += " (" + c.When + ")"
	}
	return text
}

// Facts are the figures and complaints of a run, a cluster or manifests. Missing figures are unknown.
type Facts struct {
	// Requests is how many requests the figures count.
	Requests   int
	Figures    []Figure
	Complaints []Complaint
	// Symptoms are further symptoms in words, such as a missed expectation.
	Symptoms []string
	// Excused says that the run expects its failures, so that they are no symptom.
	Excused bool
	// Conversational says that requests continue earlier ones, Disaggregated that prefill and decode are apart.
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
	// Alternatives are further leaves of the tree of high latency whose conditions hold. The tree ends at the first.
	Alternatives []Finding `json:"alternatives,omitempty"`
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
