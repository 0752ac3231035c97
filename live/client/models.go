package client

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxModelsBytes bounds a server's answer to GET /v1/models.
const maxModelsBytes = 4 << 20

// servedModel is one model in that answer.
type servedModel struct {
	ID     string  `json:"id"`
	Parent *string `json:"parent"` // of an adapter
	MaxLen int     `json:"max_model_len"`
}

// Models returns the models that the server at host:port reports at GET /v1/models, with adapters last.
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

// models returns the models that the server reports.
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
