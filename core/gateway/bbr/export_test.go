package bbr

// Model is the model of a request's body; false where there is none that a header
// can carry.
func Model(body []byte) (string, bool) {
	values, _ := read(body, []string{"model"})
	model := name(values)
	return model, model != ""
}
