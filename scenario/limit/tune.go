package limit

// Tune is a search for a better configuration. A flag of windtunnel tune replaces the field of the same name.
type Tune struct {
	// The fields and parameters that vary, each as PATH=RANGE.
	Vary []string `json:"vary" max:"32"`
	// Conditions that every candidate meets.
	Where []string `json:"where" max:"64"`
	// One or two objectives.
	Objective []string `json:"objective" max:"2"`
	// Limits that the best candidate keeps.
	Keep []string `json:"keep" max:"64"`
}
