package connector_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// tickets is a connector that nobody has: the prefill server gives out a ticket,
// with which the decode server fetches. All of it stands here.
var tickets = &connector.Connector{
	Profile: link.Profile{Name: "tickets", VLLM: "ticket", RDMAPermille: 900},
	Sidecar: connector.Sidecar{
		Prefill: func(r *connector.Request) (jsonobject.Object, header.List) {
			f := connector.OneToken(r.Path, r.Body)
			f["kv_transfer_params"] = jsonobject.Object{"ticket_wanted": r.UUID("ticket")}
			return r.Body.With(f), header.Of("X-Ticket", "wanted")
		},
		Decode: func(r *connector.Request, answer jsonobject.Object) (jsonobject.Object, header.List) {
			return r.Body.With(jsonobject.Object{
				"kv_transfer_params": jsonobject.Object{"ticket": answer.Object("kv_transfer_params")["ticket"],
					"ticket_host": r.Host}}), nil
		},
	},
	Server: connector.Server{Read: func(p *openai.Sampling, _ *connector.At) (*connector.Params, *openai.Error) {
		var q struct {
			Wanted string `json:"ticket_wanted"`
			Ticket string `json:"ticket"`
			Host   string `json:"ticket_host"`
		}
		some, bad := connector.ReadParams(p, &q)
		switch {
		case !some:
			return nil, bad
		case q.Wanted != "":
			return &connector.Params{Keep: true, Key: q.Wanted, Answer: func(k *connector.Kept) jsonobject.Object {
				return jsonobject.Object{"ticket": q.Wanted}
			}}, nil
		case q.Ticket != "":
			return &connector.Params{Remote: &connector.Remote{Host: q.Host, Port: 7, Key: q.Ticket}}, nil
		}
		return nil, nil
	}},
}

func init() { connector.All = append(connector.All, tickets) }

// server is the state of a model server that has nothing.
type server struct{ modelserver.State }

func (server) Draws() *lifecycle.Draws                   { return new(lifecycle.Draws) }
func (server) Adapter(string) (engine.AdapterID, bool)   { return 0, false }
func (server) Own(netip.Addr) bool                       { return true }
func (server) MeetsAt(host string, port int) (here bool) { return false }

// A connector that is one value and one line in All serves the sidecar, the model server that
// prefills and the one that decodes: what each writes the next one reads.
func TestOneOfYourOwn(t *testing.T) {
	t.Parallel()
	way, err := connector.Named("Tickets")
	if err != nil || connector.ProfileOf("TicketConnectorV1").Name != way.Name {
		t.Fatal(err)
	}
	reader := &modelserver.Reader{State: server{},
		Config: &modelserver.Config{Models: []string{"m"}, Engine: engine.Config{MaxModelLen: 1000},
			Tokenizer: tokens.Packed{}, Vocabulary: tokens.NewVocabulary(tokens.Packed{}), Connector: way.Profile,
			EngineID: "e"}}
	read := func(leg disagg.Leg) *modelserver.Request {
		q, bad := modelserver.Completions.Read(reader, &modelserver.Head{RequestID: "r"}, leg.Body)
		if bad != nil {
			t.Fatal(bad)
		}
		return q
	}

	var fx disagg.Effects
	x := disagg.New(&disagg.Config{Connector: way}, disagg.Request{ID: "r", Method: "POST", Path: "/v1/completions",
		Body: []byte(`{"prompt":"hello","max_tokens":9}`), Prefillers: disagg.ParseTargets("10.0.0.5:8000")})
	leg := func(m disagg.Message) disagg.Leg {
		t.Helper()
		fx.Reset()
		x.Input(machine.Second, m, &fx)
		for _, e := range fx.List {
			if c, ok := e.Do.(disagg.Call); ok {
				return c.Leg
			}
		}
		t.Fatalf("%#v: no leg in %#v", m, fx.List)
		return disagg.Leg{}
	}
	prefill := leg(disagg.Start{})
	kept := read(prefill)
	if prefill.Set.Get("X-Ticket") != "wanted" || !kept.KV.Keep || kept.KV.Key == "" || kept.MaxTokens != 1 {
		t.Fatalf("%s %+v", prefill.Body, kept.KV)
	}
	answer, err := json.Marshal(map[string]any{"kv_transfer_params": kept.KV.Answer(&connector.Kept{})})
	if err != nil {
		t.Fatal(err)
	}
	x.Input(machine.Second, disagg.Head{Leg: prefill.ID, Status: 200, ContentType: "application/json"}, &fx)
	decode := read(leg(disagg.Whole{Leg: prefill.ID, Body: answer}))
	if r := decode.KV.Remote; r == nil || r.Key != kept.KV.Key || r.Address() != "10.0.0.5:7" || decode.MaxTokens != 9 {
		t.Fatalf("%+v", decode.KV)
	}
}
