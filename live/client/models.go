package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxModelsBytes bounds what a server may say of its models.
const maxModelsBytes = 4 << 20

// Models are the models that somebody's server at host:port says it serves
// (GET /v1/models), the adapters of others last.
func Models(ctx context.Context, server string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModelsBytes))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET /v1/models: status %d", resp.StatusCode)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	var models, adapters []string
	for _, m := range list.Data {
		switch {
		case m.ID == "":
		case m.Parent == nil:
			models = append(models, m.ID)
		default:
			adapters = append(adapters, m.ID)
		}
	}
	return append(models, adapters...), nil
}
