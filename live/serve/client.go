package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Stay is the CheckRedirect of clients that call pods. It follows no redirect, because a pod must not direct the
// request to a host of its choice.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Status returns an error for a response with a status that a client with Stay cannot use.
func Status(resp *http.Response) error {
	if to := resp.Header.Get("Location"); to != "" {
		return fmt.Errorf("status %d: it redirects to %.200q, and redirects are not followed", resp.StatusCode, to)
	}
	return fmt.Errorf("status %d", resp.StatusCode)
}

// Fetch sends a request, with a JSON body if one is given, and returns at most so many bytes of the answer's body. A
// status other than 200 is an error, which quotes the beginning of the body.
func Fetch(ctx context.Context, client *http.Client, method, url string, body []byte, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w: %.200s", url, Status(resp), text)
	}
	return text, nil
}

// FetchJSON is Fetch for an answer of JSON, which it stores in into.
func FetchJSON(ctx context.Context, client *http.Client, method, url string, body []byte, most int64, into any) error {
	text, err := Fetch(ctx, client, method, url, body, most)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}
