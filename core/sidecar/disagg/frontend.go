package disagg

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Frontend makes the sidecar the process that Dynamo puts into a worker's pod: its frontend in direct mode (document
// 001's frontend beside the model server). The frontend sends clients' requests to workers as tokens, and tokens come
// back. A router in front has chosen the worker.
type Frontend struct {
	// Reader holds the template and the tokenizer.
	Reader *modelserver.Reader
	// Worker returns the address of the worker with an instance id, and false where it knows none.
	Worker func(id string) (Target, bool)
	// Router chooses the worker, where the frontend routes by itself; nil is direct mode.
	Router FrontendRouter
	// Epoch is the Unix time, in seconds, at which the run began.
	Epoch int64
}

// FrontendRouter is a frontend's own router. Several goroutines may call it at once.
type FrontendRouter interface {
	// Route books a request and returns its worker, and the worker that computes the prompt if that is another one; ""
	// is none.
	Route(id string, tokens []uint32) (worker, prefill string)
	// ReportProgress reports that the first piece of the request's answer has arrived, or that the request is over.
	ReportProgress(id string, over bool)
}

// The headers by which a request names its worker, in the canonical form of net/http.
const (
	WorkerHeader        = "X-Dynamo-Worker-Instance-Id"
	PrefillWorkerHeader = "X-Dynamo-Prefill-Instance-Id"
	RankOfWorkerHeader  = "X-Dynamo-Dp-Rank"
	RoutingModeHeader   = "X-Dynamo-Routing-Mode"
	// ProposedWorkerHeader is the header in document 001's proposal.
	ProposedWorkerHeader = "X-Gateway-Worker-Id"
)

// Routed holds the headers of a request that say how to route it behind a Frontend.
type Routed struct {
	Worker, Prefill, Rank, Mode string
}

// ReadRouted reads these headers. get returns the first value under a name in net/http's canonical form, or "".
func ReadRouted(get func(name string) string) Routed {
	return Routed{Worker: cmp.Or(get(WorkerHeader), get(ProposedWorkerHeader)), Prefill: get(PrefillWorkerHeader),
		Rank: get(RankOfWorkerHeader), Mode: get(RoutingModeHeader)}
}

// fronted is a request that passes through a Frontend.
type fronted struct {
	*modelserver.Preprocessed
	worker Target
}

// Changer rewrites a leg's answer for the client. A Change does, and a Frontend's way back.
type Changer interface {
	// Write takes a piece of the answer and returns the bytes for the client, valid until the next call. End returns
	// the rest when the answer is whole.
	Write(data []byte) []byte
	End() []byte
	// Added returns the number of tokens that the answer has and the server did not make.
	Added() int
	// Piece changes a described piece. It returns false where the client gets none of it yet.
	Piece(p *described.Piece, end bool) bool
}

type translation struct{ *modelserver.Postprocessing }

func (translation) Added() int                        { return 0 }
func (translation) Piece(*described.Piece, bool) bool { return false }

// front parses the request as a Frontend does, and sends it to its worker.
func (x *ClientRequest) front() {
	f := x.c.Frontend
	api := modelserver.APIOf(x.r.Path)
	if api == nil {
		x.fault(openai.Errorf(404, "",
			"Expected /v1/chat/completions or /v1/completions: this frontend serves no others."))
		return
	}
	if d := x.r.Described; d != nil {
		x.r.Body, x.r.Described = d.Bytes(), nil
	}
	var in struct {
		NvExt struct {
			Tokens  []uint32 `json:"token_data"`
			Worker  *uint64  `json:"backend_instance_id"`
			Prefill *uint64  `json:"prefill_worker_id"`
		} `json:"nvext"`
		Tokens []uint32 `json:"tokens"` // of document 001's proposal
	}
	if bad := openai.Decode(x.r.Body, &in); bad != nil {
		x.fault(bad)
		return
	}
	to, given := x.r.Routed, in.NvExt.Tokens
	if given == nil {
		given = in.Tokens
	}
	if to.Worker == "" && in.NvExt.Worker != nil {
		to.Worker = fmt.Sprint(*in.NvExt.Worker)
	}
	if to.Prefill == "" && in.NvExt.Prefill != nil {
		to.Prefill = fmt.Sprint(*in.NvExt.Prefill)
	}
	if to.Worker == "" && f.Router == nil {
		x.fault(openai.Errorf(500, "",
			"Worker ID required (--direct-route) but none found in request: expected the header %s or "+
				"nvext.backend_instance_id.", WorkerHeader))
		return
	}
	head := modelserver.Head{RequestID: x.name(), Created: f.Epoch + int64(x.now/machine.Second)}
	pre, bad := f.Reader.Preprocess(api, &head, x.r.Body, given)
	if bad != nil {
		x.fault(bad)
		return
	}
	x.fronted = &fronted{Preprocessed: pre}
	if f.Router != nil {
		to = Routed{}
		if to.Worker, to.Prefill = f.Router.Route(x.name(), pre.Tokens); to.Worker == "" {
			x.fault(openai.Errorf(503, "", "No worker has announced itself."))
			return
		}
	}
	var known bool
	if x.fronted.worker, known = f.Worker(to.Worker); !known {
		x.fault(openai.Errorf(503, "", "There is no worker with the instance id %.40s.", to.Worker))
		return
	}
	x.r.Body, x.rewritten, x.r.Path = pre.Body, true, connector.NativePath
	x.prefill.targets = nil
	if to.Prefill != "" && to.Mode != "aggregated" {
		t, known := f.Worker(to.Prefill)
		if !known {
			x.fault(openai.Errorf(503, "", "There is no prefill worker with the instance id %.40s.", to.Prefill))
			return
		}
		x.prefill.targets = append(x.prefill.targets, t)
		var err error
		if x.body, err = x.parse(); err != nil {
			panic(err) // it was marshalled here
		}
		x.disaggregate()
		return
	}
	why := "its tokens are read here"
	if f.Router != nil {
		why = "routed here"
	} else if given != nil {
		why = "its tokens are given"
	}
	x.mark = "local"
	x.decided("local", "", why)
	x.callDecode(Leg{Original: true})
}

// fault answers with an error in the format of OpenAI's APIs.
func (x *ClientRequest) fault(e *openai.Error) {
	x.answer(Answer{Status: e.Status, Head: header.Of("Content-Type", "application/json"),
		Body: openai.AppendError(nil, e)}, e.Message)
}

// translate sets up the way back for a leg's answer, once its status is there.
func (x *ClientRequest) translate(l *leg) {
	post := x.fronted.Postprocess()
	if x.fronted.Stream {
		x.do(Deliver{Leg: l.ID, Change: translation{post}, Head: header.Of("Content-Type", post.ContentType())})
		return
	}
	l.then = func(body []byte) {
		out := append([]byte(nil), post.Write(body)...)
		out = append(out, post.End()...)
		if bad := post.Failed(); bad != nil {
			x.fault(bad)
			return
		}
		x.over, x.timing.decodeEnd = true, x.now
		x.record(record.ResponseEndSeen, "", append(x.size(len(out)), record.D("status", l.status))...)
		x.do(Answer{Status: l.status, Head: header.Of("Content-Type", post.ContentType()), Body: out, Verbatim: l.ID})
	}
	x.do(Collect{l.ID})
}

// reportToRouter reports to a frontend's own router that the answer has begun, or that the request is over.
func (x *ClientRequest) reportToRouter(first, over bool) {
	if x.fronted == nil || x.c.Frontend.Router == nil {
		return
	}
	if x.first && !first {
		x.c.Frontend.Router.ReportProgress(x.name(), false)
	}
	if x.over && !over {
		x.c.Frontend.Router.ReportProgress(x.name(), true)
	}
}
