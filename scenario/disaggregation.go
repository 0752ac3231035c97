package scenario

import (
	"cmp"
	_ "embed" // prefillpicker.yaml
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// Disaggregation is prefill and decode on different servers. It needs sidecar: routing.
type Disaggregation struct {
	// How many servers only prefill (llm-d.ai/role: prefill). The pool's replicas are then its decode servers, each
	// behind a sidecar.
	PrefillReplicas int `json:"prefillReplicas" min:"0" max:"16384"`
	// How KV caches travel from prefill to decode servers, as the sidecar's --kv-connector.
	Connector Connector `json:"connector"`
	// Whether 16-bit caches travel as INT8, at half the bytes (document 003's NIXL v2 compression).
	CompressINT8 bool `json:"compressINT8"`
	// Whether caches travel by TCP also where the NIC has RDMA (vLLM's UCX_TLS without it, document 003's rdmaEnabled:
	// false).
	TCPOnly bool `json:"tcpOnly"`
	// The port where decode servers ask prefill servers for KV caches (vLLM's VLLM_NIXL_SIDE_CHANNEL_PORT).
	SideChannelPort int `json:"sideChannelPort" min:"1" max:"65535"`
	// Whether decoding begins once a tenth of the cache, the first layers, has arrived (document 003's NIXL v2
	// pipelining). Otherwise it begins once the whole cache has arrived.
	Pipelined bool `json:"pipelined"`
	// The link between servers: infiniband-200, infiniband-400, roce-100, roce-200, ethernet-10, ethernet-25,
	// ethernet-100, nvlink or pcie-5. Without RDMA, the connectors use TCP.
	NIC string `json:"nic" default:"infiniband-200"`
	// What happens when no prefill server could prefill: the client gets the error, or the decode server also prefills
	// (local).
	OnPrefillFailure PrefillFailure `json:"onPrefillFailure" oneof:"error,local" default:"error"`
	// How often the sidecar retries one prefill server after a 5xx or a broken connection.
	PrefillRetries int `json:"prefillRetries" min:"0" max:"100"`
	// What a decode server does when it could not fetch KV blocks: fail the request, or recompute the prompt (vLLM's
	// kv_load_failure_policy).
	OnTransferFailure TransferFailure `json:"onTransferFailure" oneof:"fail,recompute" default:"fail"`
	// How long a prefill server holds KV blocks that no server fetches (vLLM's VLLM_NIXL_ABORT_REQUEST_TIMEOUT).
	HoldBlocks time.Duration `json:"holdBlocks" min:"1ms" max:"24h" default:"480s"`
	// The number of sessions that each sidecar remembers. Above 0 is document 002's session mode, in which the sidecar
	// itself chooses the prefill server.
	SessionCache int `json:"sessionCache" min:"0" max:"1000000"`
}

func (d *Disaggregation) defaults() {
	d.Connector = Connector(connector.NIXLv2.Name)
	d.SideChannelPort = plan.SideChannelPort
}

// Connector is a way to bring KV caches from prefill to decode servers.
type Connector string

func (Connector) Values() []string {
	var out []string
	for _, c := range connector.All {
		out = append(out, c.Name)
	}
	return out
}

// PrefillFailure is the answer to a request that no server could prefill.
type PrefillFailure string

// DecodeAlone lets the decode server prefill, too. Otherwise the client gets the error.
const DecodeAlone PrefillFailure = "local"

// TransferFailure is the answer to a request whose KV blocks were lost.
type TransferFailure string

// The answers to a failed transfer.
const (
	FailRequest TransferFailure = "fail"
	Recompute   TransferFailure = "recompute"
)

// sidecarConfig returns the configuration of the pool's sidecars.
func (p *Pool) sidecarConfig() disagg.Config {
	d := &p.Disaggregation
	return disagg.Config{Connector: d.connector(), Retries: d.PrefillRetries,
		FallBack: d.OnPrefillFailure == DecodeAlone}
}

// connector returns the named connector, or the default where a scenario made in Go names none.
func (d *Disaggregation) connector() *connector.Connector {
	c, err := connector.Named(string(d.Connector))
	if err != nil {
		return connector.NIXLv2
	}
	return c
}

// link returns how KV caches travel.
func (p *Pool) link() link.Profile {
	d := &p.Disaggregation
	profile := d.connector().Profile
	if d.CompressINT8 {
		profile = profile.Compressed()
	}
	if d.Pipelined {
		profile = profile.Pipelined()
	}
	if d.TCPOnly {
		profile = profile.WithoutRDMA()
	}
	return profile
}

// sideChannel returns the port where servers are asked for KV caches. A scenario made in Go may leave it out.
func (d *Disaggregation) sideChannel() int { return cmp.Or(d.SideChannelPort, plan.SideChannelPort) }

// Servers returns the largest number of model servers at one time, including those that only prefill.
func (p *Pool) Servers() (n int) {
	for _, d := range p.Deployments() {
		n += d.Places
	}
	return n
}

// Decoders returns how many of the Servers decode. Their indexes come first.
func (p *Pool) Decoders() (n int) {
	for _, d := range p.Deployments() {
		if !d.Prefills {
			n += d.Places
		}
	}
	return n
}

// RoleLabel is the label with the role of a server in a disaggregated pool.
const RoleLabel = "llm-d.ai/role"

// labelsOf returns the labels of the server with this index, or nil.
func (p *Pool) labelsOf(d *Deployment, index int) map[string]string {
	labels := map[string]string{}
	if index < len(p.labels) {
		maps.Copy(labels, p.labels[index])
	}
	switch {
	case labels[RoleLabel] != "":
	case d == nil || !d.apart:
	case d.Prefills:
		labels[RoleLabel] = "prefill"
	default:
		labels[RoleLabel] = "decode"
	}
	if d != nil && d.Group != "" {
		labels[GroupLabel] = d.Group
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// GroupLabel is the label with the name of a server's group.
const GroupLabel = "windtunnel/group"

// pickerOfPrefill is the default EndpointPickerConfig of a disaggregated pool: the deciders and filters of llm-d, with
// document 003's threshold of 10 new tokens.
//
//go:embed prefillpicker.yaml
var pickerOfPrefill string

// builtInPicker is the name of pickerOfPrefill in messages.
const builtInPicker = "the built-in picker configuration for prefill and decode"

// checkDisaggregation checks a pool's disaggregation, and sets the pool's default picker configuration.
func (s *checker) checkDisaggregation(p *Pool, path string) {
	d := &p.Disaggregation
	field := path + ".disaggregation"
	switch given := s.written(field); {
	case given && p.Sidecar == NoSidecar:
		s.bad(field, "given with sidecar none",
			"sidecar: routing beside it: a prefill elsewhere is the sidecar's work")
	case given && len(p.Endpoints) > 0:
		s.bad(field, "given beside endpoints",
			"nothing: the operator of external model servers configures their sidecars")
	case d.SessionCache > 0 && p.Sidecar == DynamoSidecar:
		s.bad(field+".sessionCache", "given with sidecar dynamo",
			"sidecar: routing, which keeps document 002's sessions")
	case d.SessionCache > 0 && d.PrefillReplicas == 0:
		s.bad(field+".sessionCache", fmt.Sprintf("%d without prefill servers", d.SessionCache),
			"prefillReplicas of at least 1 beside it")
	}
	if _, err := link.WireNamed(d.NIC); err != nil {
		s.bad(field+".nic", err.Error(), "")
	}
	if n := d.sideChannel(); n == plan.PodPort || n == plan.BehindPort {
		s.bad(field+".sideChannelPort", fmt.Sprint(n),
			fmt.Sprintf("another port than the pods' own, %d and %d", plan.PodPort, plan.BehindPort))
	}
	if d.Pipelined && p.link().Blocking {
		s.bad(field+".pipelined", fmt.Sprintf("true with connector %s, which is synchronous", d.Connector),
			"connector: nixlv2")
	}
	if d.PrefillReplicas > 0 && !p.EPP.Config.Given() {
		text := pickerOfPrefill
		if n := p.ModelServer.BlockSize; n > 0 {
			text = strings.Replace(text, "blockSizeTokens: 16", fmt.Sprintf("blockSizeTokens: %d", n), 1)
		}
		p.EPP.Config = PickerConfig{File: builtInPicker, Text: []byte(text)}
	}
	if !p.EPP.Config.Given() {
		p.EPP.Config = s.builtInConfig()
	}
}
