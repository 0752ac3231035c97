package connector

import (
	"encoding/json"
	"strconv"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// SGLang gives both servers a bootstrap room, at the prefill server's bootstrap port. The servers exchange addresses
// there and then write by RDMA (SGLang uses Mooncake's transfer engine).
var SGLang = &Connector{
	Profile: link.Profile{Name: "sglang", VLLM: "sglang", MeetingPort: link.BootstrapPort,
		Handshake:    2 * machine.Millisecond,
		RDMAPermille: 960, Streams: 4, StreamBytesPerSecond: 4e9},
	Sidecar: Sidecar{
		Paths: []string{"/generate"}, AtOnce: true, BadBody: "failed to parse request body: ",
		Together: func(r *Request) *Legs {
			body := r.Body.With(jsonobject.Object{"bootstrap_host": r.Host, "bootstrap_port": r.MeetingPort,
				"bootstrap_room": int64(r.Number("bootstrap room") >> 1)})
			return &Legs{Prefill: body, Decode: body}
		},
	},
	Server: Server{Read: readRoom},
}

// readRoom reads SGLang's fields, which both servers receive. The server that they name as the bootstrap server
// prefills the request and generates one token. Any other server decodes it.
func readRoom(p *openai.Sampling, at *At) (*Params, *openai.Error) {
	if at.Connector != "sglang" || len(p.BootstrapRoom) == 0 || string(p.BootstrapRoom) == "null" {
		return nil, nil
	}
	var host string
	port, err := portOf(p.BootstrapPort)
	if err == nil && len(p.BootstrapHost) > 0 {
		err = json.Unmarshal(p.BootstrapHost, &host)
	}
	room, bad := strconv.ParseUint(string(p.BootstrapRoom), 10, 63)
	if err != nil || bad != nil || host == "" || port == 0 {
		return nil, openai.Errorf(400, "bootstrap_room",
			"bootstrap_host, bootstrap_port and bootstrap_room: expected a host, a port and a room's number, got "+
				"%.80s, %.40s and %.40s.", p.BootstrapHost, p.BootstrapPort, p.BootstrapRoom)
	}
	key := "room " + strconv.FormatUint(room, 10)
	if at.Role == RoleProducer || at.Role != RoleConsumer && at.MeetsAt(host, port) {
		return &Params{Keep: true, Key: key, OneToken: true}, nil
	}
	return &Params{Remote: &Remote{Host: host, Port: port, Key: key}}, nil
}
