package serve

import "net/http"

// What pages beside those for requests answer to a client that may not read them, and where they cannot be made.
// Virtual time has no such pages.

// Stopping answers that the server stops, and why that matters.
func Stopping(w http.ResponseWriter, text string) { http.Error(w, text, http.StatusServiceUnavailable) }

// Failed answers that a page cannot be made.
func Failed(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// Known serves requests that are allowed; others read what it needs.
func Known(next http.Handler, allowed func(*http.Request) bool, needs string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			http.Error(w, needs, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// LocalOnly serves requests that come from this machine, or that are allowed;
// others read what it needs.
func LocalOnly(next http.Handler, allowed func(*http.Request) bool, needs string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Local(r) && !allowed(r) {
			http.Error(w, r.URL.Path+" is served to this machine alone: "+needs, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
