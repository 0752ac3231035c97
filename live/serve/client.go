package serve

import (
	"fmt"
	"net/http"
)

// Stay is the CheckRedirect of clients that ask pods: nobody who answers for one may
// send the request on to a host of its choice.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Status is the error of a response that a client with Stay cannot use.
func Status(resp *http.Response) error {
	if to := resp.Header.Get("Location"); to != "" {
		return fmt.Errorf("status %d: it redirects to %.200q, and redirects are not followed", resp.StatusCode, to)
	}
	return fmt.Errorf("status %d", resp.StatusCode)
}
