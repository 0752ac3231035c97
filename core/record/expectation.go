package record

// Expectation is a condition on a run's result, and whether the run met it.
type Expectation struct {
	What     string `json:"what"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	OK       bool   `json:"ok"`
}
