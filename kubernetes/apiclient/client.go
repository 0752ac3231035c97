// Package apiclient speaks to an API server about a few kinds of objects, without the libraries of all others.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// Client sends requests to an API server, as JSON.
type Client struct {
	// URL is the server's, without a slash at its end.
	URL  string
	http *http.Client
}

// Config returns how to reach the API server: as the file kubeconfig says or, if it is "", as in a pod.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, exit.Hint(exit.Environment, fmt.Errorf("no API server: %w", err),
			"name a file with --kubeconfig or KUBECONFIG, or run in a pod")
	}
	return config, nil
}

// New returns a client for a server.
func New(config *rest.Config) (*Client, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{strings.TrimSuffix(base.String(), "/"), client}, nil
}

// At returns the path of objects of a kind, such as pods, in a namespace, or with further elements of one of them.
func At(kind, namespace string, name ...string) string {
	group := "/api/v1"
	switch kind {
	case "jobs":
		group = "/apis/batch/v1"
	case "deployments", "replicasets":
		group = "/apis/apps/v1"
	}
	return strings.Join(append([]string{group, "namespaces", namespace, kind}, name...), "/")
}

// Open returns the body of an answer. The error of an answer that is no success is an apierrors.APIStatus.
func (a *Client) Open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	req.Header.Set("Accept", "application/json, */*")
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || status.Status != metav1.StatusFailure {
		status = metav1.Status{Status: metav1.StatusFailure, Code: int32(resp.StatusCode),
			Message: fmt.Sprintf("%s %s: %s: %.300s", method, path, resp.Status, text)}
	}
	return nil, errors.Join(err, &apierrors.StatusError{ErrStatus: status})
}

// Do sends a request, and reads the answer into out unless it is nil.
func (a *Client) Do(ctx context.Context, method, path string, in, out any) error {
	body, err := a.Open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, body)
		return err
	}
	return json.NewDecoder(body).Decode(out)
}
