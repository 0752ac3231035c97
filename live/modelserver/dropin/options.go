package dropin

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"

	core "github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
)

// defaultAccelerator is the accelerator of a catalogue model if the command line names none.
const defaultAccelerator = "H100"

// fill sets the profile's defaults for options that the command line leaves out.
func (r *Result) fill(simFlags bool) error {
	if r.Profile == "" {
		r.Profile = ProfileDocument
		if simFlags {
			r.Profile = ProfileSim
		}
	}
	def := func(v *int, d int) { *v = cmp.Or(*v, d) }
	a, err := hardware.AcceleratorNamed(r.Accelerator)
	if err != nil { // no model is named, or none that is known: a later check returns that error
		a, _ = hardware.AcceleratorNamed(defaultAccelerator)
	}
	v, err := a.VLLM(r.VLLMVersion)
	if err != nil {
		return fmt.Errorf("--vllm-version: %w", err)
	}
	port := defaultPort
	switch r.Profile {
	case ProfileSim:
		def(&r.Engine.MaxNumSeqs, 5)
		def(&r.Engine.MaxModelLen, 1024)
		tokens := cmp.Or(r.Engine.BlockSize, 16)
		// A simulator without a KV cache has no limit.
		def(&r.Engine.NumGPUBlocks, max(1024, (r.Engine.MaxModelLen+tokens-1)/tokens))
		def(&r.MaxBodyMiB, 4)
		def(&r.MaxWaiting, 1000)
		def(&r.Engine.MaxNumBatchedTokens, max(8192, r.Engine.MaxNumSeqs))
		if !r.TimeToFirstToken.Set() {
			r.TimeToFirstToken.Mean = "0"
		}
		if !r.InterTokenLatency.Set() {
			r.InterTokenLatency.Mean = "0"
		}
	case ProfileVLLM:
		def(&r.Engine.MaxNumBatchedTokens, max(v.MaxNumBatchedTokens, r.Engine.MaxNumSeqs))
		def(&r.Engine.MaxNumSeqs, min(v.MaxNumSeqs, r.Engine.MaxNumBatchedTokens))
	case ProfileSGLang:
		r.fillSGLang(def)
		port = sglangPort
	}
	if r.Port < 0 {
		r.Port = port
	}
	def(&r.Engine.MaxNumSeqs, 256)
	def(&r.Engine.MaxNumBatchedTokens, max(8192, r.Engine.MaxNumSeqs))
	def(&r.Engine.BlockSize, 16)
	def(&r.DataParallel, 1)
	def(&r.TensorParallel, 1)
	r.DataParallelRank = max(r.DataParallelRank, 0)
	if r.ranks() > maxRanks {
		return fmt.Errorf("--data-parallel-size: expected at most %d ranks in one process, got %d; say how many are "+
			"here with --data-parallel-size-local", maxRanks, r.ranks())
	}
	r.Host = cmp.Or(r.Host, "127.0.0.1")
	r.Model = cmp.Or(r.Model, core.DefaultModel)
	if r.Engine.MaxCPULoRAs > 0 && r.Engine.MaxCPULoRAs < max(r.Engine.MaxLoRAs, 1) {
		return fmt.Errorf("--max-cpu-loras: expected at least --max-loras, %d, got %d", max(r.Engine.MaxLoRAs, 1),
			r.Engine.MaxCPULoRAs)
	}
	for _, t := range []struct {
		what     string
		min, max float64
	}{{"integer-param", float64(r.Tools.MinInteger), float64(r.Tools.MaxInteger)},
		{"number-param", r.Tools.MinNumber, r.Tools.MaxNumber},
		{"array-param-length", float64(r.Tools.MinItems), float64(r.Tools.MaxItems)}} {
		if t.max != 0 && t.min > t.max {
			return fmt.Errorf("--min-tool-call-%s: expected at most --max-tool-call-%s, %v, got %v", t.what, t.what,
				t.max, t.min)
		}
	}
	if r.ChatTemplate != "" {
		if _, err := r.file(r.ChatTemplate, chattemplate.MaxTemplateBytes); errors.Is(err, fs.ErrNotExist) {
			r.Notes = append(r.Notes, "--chat-template: "+r.ChatTemplate+" is not on this machine; chats are written "+
				"with the model's own template, or one that fits its name")
			r.ChatTemplate = ""
		}
	}
	if r.SpeculativeTokens > 0 {
		r.Notes = append(r.Notes, "--speculative-config: speculation is not simulated; its metrics are there and say 0")
	}
	if r.OtherGeneration {
		r.Notes = append(r.Notes, "--override-generation-config: max_new_tokens alone acts; no token is sampled")
	}
	if r.ranks() > 1 {
		r.Notes = append(r.Notes, "--data-parallel-size: every rank is a server with a port of its own, from --port on")
	}
	if r.KVEvents != nil && !r.KVEvents.Enabled {
		r.KVEvents = nil
	}
	if r.KVEvents != nil && r.KVEvents.Endpoint == "" {
		r.KVEvents.Endpoint = "tcp://*:5557"
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		return errors.New("--ssl-certfile and --ssl-keyfile: expected both or neither")
	}
	return nil
}

// maxRanks limits the servers of one command line.
const maxRanks = 64

// ranks returns how many data-parallel ranks run here.
func (r *Result) ranks() int { return min(r.DataParallel, cmp.Or(r.DataParallelLocal, r.DataParallel)) }

// Fleet returns the model servers' options for the command line: one server for each data-parallel rank, on consecutive
// ports.
func (r *Result) Fleet() (modelserver.Options, error) {
	var o modelserver.Options
	if r.Seed != nil {
		o.Seed = *r.Seed
	}
	advertised, err := r.advertised()
	if err != nil {
		return o, err
	}
	so, err := r.server(advertised)
	if err != nil {
		return o, err
	}
	if o.Transfer, err = r.transfer(); err != nil {
		return o, err
	}
	for rank := range r.ranks() {
		x := so
		port := r.Port
		if port != 0 {
			port += rank
		}
		x.Name = fmt.Sprintf("%s-%d", r.Model, r.DataParallelRank+rank)
		x.Listen = net.JoinHostPort(r.Host, strconv.Itoa(port))
		if r.SideChannelPort != 0 {
			host := r.SideChannelHost
			host = cmp.Or(host, r.Host)
			x.SideChannel = net.JoinHostPort(host, strconv.Itoa(r.SideChannelPort+rank))
		}
		r.meet(&x, rank)
		o.Servers = append(o.Servers, x)
	}
	return o, nil
}

// advertised returns the host that the server gives to others if that differs from the host that it listens on.
func (r *Result) advertised() (string, error) {
	if r.Advertise == "" && !serve.Wildcard(r.Host) {
		return "", nil
	}
	host, err := serve.Advertised(r.Host, r.Advertise, func(string) (string, bool) { return r.PodIP, r.PodIP != "" })
	if err != nil {
		return "", fmt.Errorf("--advertise: %w", err)
	}
	return host, nil
}

func (r *Result) server(advertised string) (modelserver.ServerOptions, error) {
	so := r.ServerOptions
	so.Advertise, so.MaxBodyBytes = advertised, int64(r.MaxBodyMiB)<<20
	so.PromptTokensDetails = r.PromptTokensDetails || r.Profile == ProfileSim
	so.TimingHeaders = r.TimingHeaders || r.Profile == ProfileDocument
	so.IgnoreSleep = r.Sleeps != nil && !*r.Sleeps || r.Sleeps == nil && r.Profile == ProfileSim
	so.SGLang = r.Profile == ProfileSGLang
	if so.KVCacheMetricsSample = cmp.Or(r.KVCacheMetricsSample, 0.01); !r.KVCacheMetrics {
		so.KVCacheMetricsSample = 0
	}
	var err error
	if r.ImageTime.Set() {
		d, err := r.ImageTime.dist()
		if err != nil {
			return so, fmt.Errorf("--time-to-generate-image: %w", err)
		}
		so.ImageTime = &d
	}
	if len(so.Models) == 0 {
		so.Models = []string{r.Model}
	}
	if r.Mode == "echo" {
		so.Content = core.ContentEcho
	}
	if r.Dataset != "" {
		if so.Dataset, err = ReadDataset(r.Dataset, r.DatasetTable); err != nil {
			return so, fmt.Errorf("--dataset-path: %w", err)
		}
	}
	if err := readTokenizer(&so, r.Tokenizer, r.ChatTemplate, r.file); err != nil {
		return so, err
	}
	if r.OutputTokens != "" {
		d, err := dist.ParseCount(r.OutputTokens)
		if err != nil {
			return so, fmt.Errorf("--output-tokens: %w", err)
		}
		so.OutputTokens = &d
	}
	if so.TLS, err = r.tls(cmp.Or(advertised, r.Host)); err != nil {
		return so, err
	}
	if r.StartupDelay.Set() {
		d, err := parseSpan(r.StartupDelay.Mean)
		if err != nil {
			return so, fmt.Errorf("--startup-duration: %w", err)
		}
		so.StartupDelay = d.Duration()
	}
	return so, r.engine(&so)
}

func (r *Result) engine(so *modelserver.ServerOptions) error {
	c := &so.Engine
	c.MaxLoRAs, c.ReportSteps = max(c.MaxLoRAs, 1), true
	if r.Profile != ProfileSim {
		c.LoRALoadTime, c.LoRAActivateTime = engine.DefaultLoRALoadTime, engine.DefaultLoRAActivateTime
	}
	if err := spans(spanFlag{"lora-load-time", r.LoRALoadTime, &c.LoRALoadTime},
		spanFlag{"lora-activate-time", r.LoRAActivateTime, &c.LoRAActivateTime}); err != nil {
		return err
	}
	if r.MaxWaiting > 0 {
		c.MaxInFlight = r.MaxWaiting + r.Engine.MaxNumSeqs
	}
	var err error
	if r.Policy != "" {
		if c.Policy, err = engine.ParsePolicy(r.Policy); err != nil {
			return fmt.Errorf("--scheduling-policy: %w", err)
		}
	}
	if r.Batching != "" {
		if c.Batching, err = engine.ParseBatching(r.Batching); err != nil {
			return fmt.Errorf("--batching: %w", err)
		}
	}
	if r.KVTransfer != nil && r.KVTransfer.LoadFailure != "" {
		if c.KVLoadFailure, err = engine.ParseKVLoadFailure(r.KVTransfer.LoadFailure); err != nil {
			return fmt.Errorf("--kv-transfer-config: %w", err)
		}
	}
	if c.Batching == engine.BatchingIndependent {
		c.MaxModelLen = max(c.MaxModelLen, 0)
		return r.independent(so)
	}
	if err := r.steps(so); err != nil {
		return err
	}
	c.MaxModelLen = max(c.MaxModelLen, 0) // auto with an unknown model means the engine's default
	if r.Engine.DisableChunkedPrefill && !r.budgetGiven {
		// As in vLLM, a prompt of any length must fit into one step.
		c.MaxNumBatchedTokens = max(c.MaxNumBatchedTokens, c.MaxModelLen, engineModelLen)
	}
	return nil
}

// engineModelLen is the engine's default context length.
const engineModelLen = 8192

func (r *Result) tls(host string) (*tls.Config, error) {
	switch {
	case r.CertFile != "":
		files, err := tlsfiles.Pair(r.CertFile, r.KeyFile, nil)
		if err != nil {
			return nil, fmt.Errorf("--ssl-certfile and --ssl-keyfile: %w", err)
		}
		return tlsfiles.Server(files, "h2", "http/1.1"), nil
	case r.SelfSigned:
		return tlsfiles.SelfSigned([]string{host}, "h2", "http/1.1")
	}
	return nil, nil
}
