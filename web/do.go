package web

// Action is something that somebody can do to a live run from the page.
type Action struct {
	Name string `json:"name"`
}

// Act is the wish for it.
type Act struct {
	Name string `json:"name"`
}
