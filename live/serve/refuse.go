package serve

import "net/http"

// The answers of pages for operators to clients without access, and where a page cannot be built. Virtual time has no
// such pages.

// Stopping answers 503 because the server is stopping. The text says why that matters to the client.
func Stopping(w http.ResponseWriter, text string) { http.Error(w, text, http.StatusServiceUnavailable) }

// Failed answers 500 with the reason why a page could not be built.
func Failed(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// Known serves allowed requests. All others get a 401 whose text says what they need.
func Known(next http.Handler, allowed func(*http.Request) bool, needs string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			http.Error(w, needs, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// LocalOnly serves requests from this machine and allowed requests. All others get a 403 whose text says what they
// need.
func LocalOnly(next http.Handler, allowed func(*http.Request) bool, needs string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Local(r) && !allowed(r) {
			http.Error(w, r.URL.Path+" is served to this machine alone: "+needs, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
