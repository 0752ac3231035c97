package connector

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Mooncake gives both servers the id of a transfer. The sidecar asks for the prefill server's engine at its bootstrap
// port, where the servers exchange addresses, too. Then the prefill server writes by RDMA.
var Mooncake = &Connector{
	Profile: link.Profile{Name: "mooncake", VLLM: "mooncake", Metrics: "mooncake", MeetingPort: link.BootstrapPort,
		Handshake:    2 * machine.Millisecond,
		RDMAPermille: 960, Streams: 4, StreamBytesPerSecond: 4e9},
	Sidecar: Sidecar{
		AtOnce: true,
		Ask: &Ask{
			Path:   "/query",
			Answer: func(engineID string) []byte { return fmt.Appendf(nil, `{"0":{"engine_id":%q}}`, engineID) },
			Read:   readEngines,
		},
		Together: func(r *Request) *Legs {
			id := "xfer-" + r.UUID("transfer")
			prefill := OneTokenLoose(r.Path, r.Body)
			prefill["kv_transfer_params"] = jsonobject.Object{"do_remote_decode": true, "do_remote_prefill": false,
				"transfer_id": id}
			return &Legs{Prefill: r.Body.With(prefill), Head: header.Of(RankHeader, header.Text(r.Engine.Rank)),
				Decode: r.Body.With(jsonobject.Object{
					"kv_transfer_params": jsonobject.Object{"do_remote_decode": false, "do_remote_prefill": true,
						"remote_bootstrap_addr": "http://" + Address(r.Host, r.MeetingPort),
						"remote_engine_id":      r.Engine.ID, "transfer_id": id}})}
		},
	},
	Server: Server{Read: readMooncake},
}

// readEngines reads {"0":{"engine_id":…}}, one for each data-parallel rank.
func readEngines(answer []byte) ([]Engine, error) {
	var ranks map[string]map[string]any
	if err := json.Unmarshal(answer, &ranks); err != nil {
		return nil, fmt.Errorf("failed to parse bootstrap response: %w", err)
	}
	var engines []Engine
	for rank, v := range ranks {
		if id, ok := v["engine_id"].(string); ok {
			engines = append(engines, Engine{rank, id})
		}
	}
	machine.SortFunc(engines, func(a, b Engine) int { return strings.Compare(a.Rank, b.Rank) })
	if len(engines) == 0 {
		return nil, errors.New("engine_id not found in bootstrap response")
	}
	return engines, nil
}

func transferKey(id string) string { return "transfer " + id }

func readMooncake(p *openai.Sampling, _ *At) (*Params, *openai.Error) {
	var q struct {
		RemoteDecode  bool            `json:"do_remote_decode"`
		RemotePrefill bool            `json:"do_remote_prefill"`
		EngineID      string          `json:"remote_engine_id"`
		Transfer      string          `json:"transfer_id"`
		Bootstrap     string          `json:"remote_bootstrap_addr"`
		Notify        json.RawMessage `json:"remote_notify_port"` // MoRI-IO's
	}
	if some, bad := ReadParams(p, &q, "transfer_id"); !some {
		return nil, bad
	}
	switch {
	case q.Transfer == "" || len(q.Notify) > 0:
	case q.RemoteDecode:
		return &Params{Keep: true, Key: transferKey(q.Transfer)}, nil
	case q.RemotePrefill && q.Bootstrap != "":
		u, err := url.Parse(q.Bootstrap)
		if err != nil {
			return badParam("remote_bootstrap_addr", "%v", err)
		}
		port, err := strconv.Atoi(u.Port())
		if err != nil || u.Hostname() == "" {
			return badParam("remote_bootstrap_addr", "%.100q is no address such as http://10.0.0.5:8998", q.Bootstrap)
		}
		return &Params{Remote: &Remote{Host: u.Hostname(), Port: port, EngineID: q.EngineID,
			Key: transferKey(q.Transfer)}}, nil
	}
	return nil, nil
}
