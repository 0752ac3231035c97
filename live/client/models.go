package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxModelsBytes bounds what a server may say of its models.
const maxModelsBytes = 4 << 20

// servedModel is a model that a server says it serves.
type servedModel struct {
	ID     string  `json:"id"`
	Parent *string `json:"parent"` // of an adapter
	MaxLen int     `json:"max_model_len"`
}

// Models returns the models that the server at host:port says it serves (GET /v1/models), the adapters of others last.
func Models(ctx context.Context, server string) ([]string, error) {
	p := NewProber(server, "", 0)
	defer p.http.CloseIdleConnections()
	list, err := p.models(ctx)
	var models, adapters []string
	for _, m := range list {
		switch {
		case m.ID == "":
		case m.Parent == nil:
			models = append(models, m.ID)
		default:
			adapters = append(adapters, m.ID)
		}
	}
	return append(models, adapters...), err
}

// models returns what the server says it serves.
func (p *Prober) models(ctx context.Context) ([]servedModel, error) {
	text, err := p.page(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	var list struct{ Data []servedModel }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	return list.Data, nil
}
