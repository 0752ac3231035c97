package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A client with Stay does not follow a pod's redirect to another host.
func TestStay(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	pod := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/secret", http.StatusTemporaryRedirect))
	defer pod.Close()
	client := &http.Client{CheckRedirect: Stay}
	resp, err := client.Post(pod.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := Status(resp); !strings.Contains(err.Error(), "status 307: it redirects to \""+elsewhere.URL) {
		t.Error(err)
	}
}
