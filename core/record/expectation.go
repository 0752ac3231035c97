package record

// Expectation is something that a run had to come to, and whether it did.
type Expectation struct {
	What     string `json:"what"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	OK       bool   `json:"ok"`
}
