package dropin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// defaultAccelerator is what a model of the catalogue runs on where none is
// named.
const defaultAccelerator = "H100"

// fill puts the profile's defaults where nothing was said.
func (r *Result) fill(simFlags bool) error {
	if r.Profile == "" {
		r.Profile = ProfileDocument
		if simFlags {
			r.Profile = ProfileSim
		}
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	switch r.Profile {
	case ProfileSim:
		def(&r.MaxNumSeqs, 5)
		def(&r.MaxModelLen, 1024)
		def(&r.NumGPUBlocks, 1024)
		def(&r.MaxBodyMiB, 4)
		def(&r.MaxWaiting, 1000)
		def(&r.MaxNumBatchedTokens, max(8192, r.MaxNumSeqs))
		if !r.TimeToFirstToken.Set() {
			r.TimeToFirstToken.Mean = "0"
		}
		if !r.InterTokenLatency.Set() {
			r.InterTokenLatency.Mean = "0"
		}
	case ProfileVLLM:
		a, err := latency.AcceleratorNamed(r.Accelerator)
		if err != nil { // none named, or none that is known: that is told later
			a, _ = latency.AcceleratorNamed(defaultAccelerator)
		}
		seqs, batched := a.VLLMDefaults()
		def(&r.MaxNumBatchedTokens, max(batched, r.MaxNumSeqs))
		def(&r.MaxNumSeqs, min(seqs, r.MaxNumBatchedTokens))
	}
	def(&r.MaxNumSeqs, 256)
	def(&r.MaxNumBatchedTokens, max(8192, r.MaxNumSeqs))
	def(&r.BlockSize, 16)
	def(&r.DataParallel, 1)
	def(&r.TensorParallel, 1)
	r.DataParallelRank = max(r.DataParallelRank, 0)
	if n := r.DataParallelLocal; n > 0 {
		r.DataParallel = min(r.DataParallel, n)
	}
	if r.DataParallel > maxRanks {
		return fmt.Errorf("--data-parallel-size: expected at most %d ranks in one process, got %d; say how many are here with --data-parallel-size-local", maxRanks, r.DataParallel)
	}
	def(&r.Port, 8000)
	if r.GPUMemoryUtilization == 0 {
		r.GPUMemoryUtilization = 0.9
	}
	if r.Host == "" {
		r.Host = "127.0.0.1"
	}
	if r.Model == "" {
		r.Model = modelserver.DefaultModel
	}
	if r.MaxCPULoRAs > 0 && r.MaxCPULoRAs < max(r.MaxLoRAs, 1) {
		return fmt.Errorf("--max-cpu-loras: expected at least --max-loras, %d, got %d", max(r.MaxLoRAs, 1), r.MaxCPULoRAs)
	}
	for _, t := range []struct {
		what     string
		min, max float64
	}{{"integer-param", float64(r.Tools.MinInteger), float64(r.Tools.MaxInteger)}, {"number-param", r.Tools.MinNumber, r.Tools.MaxNumber},
		{"array-param-length", float64(r.Tools.MinItems), float64(r.Tools.MaxItems)}} {
		if t.max != 0 && t.min > t.max {
			return fmt.Errorf("--min-tool-call-%s: expected at most --max-tool-call-%s, %v, got %v", t.what, t.what, t.max, t.min)
		}
	}
	if r.SpeculativeTokens > 0 {
		r.Notes = append(r.Notes, "--speculative-config: speculation is not simulated; its metrics are there and say 0")
	}
	if r.DataParallel > 1 {
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

// maxRanks bounds the servers of one command line.
const maxRanks = 64

// Fleet is what the command line asks for, as the model server takes it: one
// server for each data-parallel rank, on ports that follow one another.
func (r *Result) Fleet() (modelserver.Options, error) {
	var o modelserver.Options
	if r.Seed != nil {
		o.Seed = *r.Seed
	}
	so, err := r.server()
	if err != nil {
		return o, err
	}
	if o.Transfer, err = r.transfer(); err != nil {
		return o, err
	}
	for rank := range r.DataParallel {
		x := so
		port := r.Port
		if port != 0 {
			port += rank
		}
		x.Name = fmt.Sprintf("%s-%d", r.Model, r.DataParallelRank+rank)
		x.Listen = net.JoinHostPort(r.Host, strconv.Itoa(port))
		if r.SideChannelPort != 0 {
			host := r.SideChannelHost
			if host == "" {
				host = r.Host
			}
			x.SideChannel = net.JoinHostPort(host, strconv.Itoa(r.SideChannelPort+rank))
		}
		r.meet(&x, rank)
		o.Servers = append(o.Servers, x)
	}
	return o, nil
}

func (r *Result) server() (modelserver.ServerOptions, error) {
	so := modelserver.ServerOptions{
		Models: append([]string(nil), r.Served...), Adapters: r.Adapters, TensorParallel: r.TensorParallel,
		RequestIDHeaders: r.RequestIDHeaders, PromptTokensDetails: r.PromptTokensDetails || r.Profile == ProfileSim,
		MaxBodyBytes: int64(r.MaxBodyMiB) << 20, APIKeys: r.APIKeys, Inject: r.Inject, FakeMetrics: r.FakeMetrics,
		PodName: r.PodName, PodNamespace: r.PodNamespace,
		Dimensions: r.Dimensions, CacheHitThreshold: r.CacheHitThreshold, EncoderOnly: r.EncoderOnly, Omni: r.Omni, ImagePercent: r.ImagePercent,
		Tools: r.Tools, FullStatus: r.FullStatus, SpeculativeTokens: r.SpeculativeTokens,
	}
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
		so.Content = modelserver.ContentEcho
	}
	var err error
	if r.Dataset != "" {
		if so.Dataset, err = ReadDataset(r.Dataset, r.DatasetTable); err != nil {
			return so, fmt.Errorf("--dataset-path: %w", err)
		}
	}
	if so.Tokenizer, so.TokenizerJSON, err = readTokenizer(r.Tokenizer); err != nil {
		return so, err
	}
	if r.OutputTokens != "" {
		d, err := latency.ParseCount(r.OutputTokens)
		if err != nil {
			return so, fmt.Errorf("--output-tokens: %w", err)
		}
		so.OutputTokens = &d
	}
	if so.TLS, err = r.tls(); err != nil {
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
	*c = engine.Config{
		MaxNumSeqs: r.MaxNumSeqs, MaxNumBatchedTokens: r.MaxNumBatchedTokens, MaxModelLen: r.MaxModelLen,
		BlockSize: r.BlockSize, NumGPUBlocks: r.NumGPUBlocks, DisablePrefixCaching: r.NoPrefixCaching, DisableChunkedPrefill: r.NoChunkedPrefill,
		LongPrefillTokenThreshold: r.LongPrefillTokenThreshold, MaxNumPartialPrefills: r.MaxNumPartialPrefills,
		MaxLongPartialPrefills: r.MaxLongPartialPrefills, MaxLoRAs: max(r.MaxLoRAs, 1), MaxCPULoRAs: r.MaxCPULoRAs, ReportSteps: true,
	}
	if r.Profile != ProfileSim {
		c.LoRALoadTime, c.LoRAActivateTime = engine.DefaultLoRALoadTime, engine.DefaultLoRAActivateTime
	}
	for _, t := range []struct {
		flag   string
		timing Timing
		to     *machine.Time
	}{{"lora-load-time", r.LoRALoadTime, &c.LoRALoadTime}, {"lora-activate-time", r.LoRAActivateTime, &c.LoRAActivateTime}} {
		if t.timing.Set() {
			d, err := parseSpan(t.timing.Mean)
			if err != nil {
				return fmt.Errorf("--%s: %w", t.flag, err)
			}
			*t.to = d
		}
	}
	if r.MaxWaiting > 0 {
		c.MaxInFlight = r.MaxWaiting + r.MaxNumSeqs
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
	c.MaxModelLen = max(c.MaxModelLen, 0) // auto, of a model that is not known: the engine's default
	if r.NoChunkedPrefill && !r.budgetGiven {
		// As in vLLM: a prompt of any length must fit into one step.
		c.MaxNumBatchedTokens = max(c.MaxNumBatchedTokens, c.MaxModelLen, engineModelLen)
	}
	return nil
}

// engineModelLen is the engine's own default of the context.
const engineModelLen = 8192

// independent gives every request its own times.
func (r *Result) independent(so *modelserver.ServerOptions) error {
	for _, t := range []struct {
		flag   string
		timing Timing
		to     **latency.Dist
	}{{"time-to-first-token", r.TimeToFirstToken, &so.Prefill}, {"inter-token-latency", r.InterTokenLatency, &so.TokenTime}} {
		if !t.timing.Set() {
			continue
		}
		d, err := t.timing.dist()
		if err != nil {
			return fmt.Errorf("--%s: %w", t.flag, err)
		}
		*t.to = &d
	}
	return nil
}

// Defaults where neither times nor a model of the catalogue were given.
const (
	defaultTTFT = 100 * machine.Millisecond
	defaultITL  = 20 * machine.Millisecond
)

// steps gives a batching engine its clock: the times that were given, else
// those of the model on an accelerator, else constants.
func (r *Result) steps(so *modelserver.ServerOptions) error {
	config := latency.Config{Component: "step"}
	if r.Seed != nil {
		config.Seed = *r.Seed
	}
	hardware, err := r.hardware()
	if err != nil {
		return err
	}
	switch {
	case r.TimeToFirstToken.Set() || r.InterTokenLatency.Set() || r.PrefillTimePerToken.Set() || r.PrefillOverhead.Set():
		if err := r.given(&config); err != nil {
			return err
		}
	case hardware != nil:
		config.Hardware = hardware
	default:
		config.Kind, config.Constant = latency.KindConstant, latency.Constant{TimeToFirstToken: defaultTTFT, InterTokenLatency: defaultITL}
	}
	timer, err := latency.New(config)
	if err != nil {
		return err
	}
	so.Engine.Timer = timer
	if r.TimeFactorUnderLoad > 1 {
		so.Engine.Timer = newUnderLoad(timer, r.TimeFactorUnderLoad, r.MaxNumSeqs)
	} else if config.Kind == latency.KindConstant && config.Jitter.Factor.IsConstant() {
		so.Engine.Timer = modelserver.NewAdjustable(config.Constant) // the admin API can change it
	}
	if hardware == nil {
		return nil
	}
	plan, err := latency.PlanMemory(latency.MemoryConfig{Hardware: hardware, BlockSize: r.BlockSize, GPUMemoryUtilization: r.GPUMemoryUtilization,
		MaxNumSeqs: r.MaxNumSeqs, MaxNumBatchedTokens: r.MaxNumBatchedTokens, MaxModelLen: max(r.MaxModelLen, 1), EnforceEager: r.EnforceEager,
		SwapSpaceBytes: int64(r.SwapSpaceGiB * (1 << 30))})
	var oom *latency.OutOfMemoryError
	if errors.As(err, &oom) && r.RestartOOM {
		so.OutOfMemory = err
		so.Engine.NumGPUBlocks = max(so.Engine.NumGPUBlocks, so.Engine.MaxModelLen, 8192) // it never serves
	} else if err != nil {
		return err
	}
	if so.Engine.NumGPUBlocks == 0 {
		so.Engine.NumGPUBlocks = plan.NumGPUBlocks
	}
	if so.OutOfMemory == nil {
		if err := r.context(so, hardware, &plan); err != nil {
			return err
		}
	}
	so.Engine.NumCPUBlocks = max(so.Engine.NumCPUBlocks, plan.NumCPUBlocks)
	so.MemoryBytes = plan.Weights + plan.Activations + plan.Runtime
	so.Engine.KVBytesPerToken = plan.BlockBytes * int64(hardware.Group.TP) / int64(max(r.BlockSize, 1))
	return nil
}

// context chooses the longest sequence where none was given: the model's own
// context or, with --max-model-len auto and outside of vLLM's profile, as much
// of it as the KV cache holds. vLLM itself refuses to start then; so does this
// with its profile, in the same words.
func (r *Result) context(so *modelserver.ServerOptions, h *latency.Hardware, plan *latency.MemoryPlan) error {
	if r.MaxModelLen > 0 {
		return nil
	}
	own, fits := h.Model.MaxModelLen, so.Engine.NumGPUBlocks*r.BlockSize
	if own == 0 {
		own = engineModelLen
	}
	if own > fits && r.MaxModelLen == 0 && r.Profile == ProfileVLLM {
		const gib = 1 << 30
		need := plan.BlockBytes * int64((own+r.BlockSize-1)/r.BlockSize)
		return fmt.Errorf("--max-model-len: to serve at least one request with the model's max seq len (%d), %.2f GiB KV cache is needed, which is larger than the available KV cache memory (%.2f GiB); "+
			"based on the available memory, the estimated maximum model length is %d; increase --gpu-memory-utilization, decrease --max-model-len, or set it to auto",
			own, float64(need)/gib, float64(int64(so.Engine.NumGPUBlocks)*plan.BlockBytes)/gib, fits)
	}
	so.Engine.MaxModelLen = min(own, fits)
	return nil
}

// hardware is the model on its accelerator; nil where none was named and the
// model is not in the catalogue.
func (r *Result) hardware() (*latency.Hardware, error) {
	n := latency.HardwareNames{Model: r.Model, Accelerator: r.Accelerator, TP: r.TensorParallel, Nodes: r.Nodes, Quantization: r.Quantization,
		KVCacheDType: strings.TrimPrefix(r.KVCacheDType, "auto"), NCCLIBDisable: r.NCCLIBDisable}
	if r.Accelerator == "" {
		if _, err := latency.ModelShape(r.Model); err != nil || r.Profile == ProfileSim {
			return nil, nil
		}
		n.Accelerator = defaultAccelerator
	}
	h, err := n.Resolve()
	if err != nil {
		return nil, fmt.Errorf("--accelerator: %w", err)
	}
	return h, nil
}

// given makes step times of llm-d-inference-sim's flags.
func (r *Result) given(c *latency.Config) error {
	span := func(name string, t Timing) (machine.Time, error) {
		if !t.Set() {
			return 0, nil
		}
		d, err := parseSpan(t.Mean)
		if err != nil {
			return 0, fmt.Errorf("--%s: %w", name, err)
		}
		return d, nil
	}
	ttft, err1 := span("time-to-first-token", r.TimeToFirstToken)
	itl, err2 := span("inter-token-latency", r.InterTokenLatency)
	overhead, err3 := span("prefill-overhead", r.PrefillOverhead)
	perToken, err4 := span("prefill-time-per-token", r.PrefillTimePerToken)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	perTokens := ttft == 0 && (overhead > 0 || perToken > 0)
	switch r.LatencyCalculator {
	case "constant":
		perTokens = false
	case "per-token":
		perTokens, ttft = true, 0
	}
	if perTokens {
		c.Kind = latency.KindPerToken
		c.PerToken = latency.PerToken{Step: engine.ToFixed(max(itl, 1)), PrefillOverhead: engine.ToFixed(overhead), PrefillToken: engine.ToFixed(perToken)}
	} else {
		c.Kind, c.Constant = latency.KindConstant, latency.Constant{TimeToFirstToken: ttft, InterTokenLatency: itl}
	}
	for _, t := range []struct {
		timing Timing
		mean   machine.Time
	}{{r.InterTokenLatency, itl}, {r.TimeToFirstToken, ttft}, {r.PrefillOverhead, max(overhead, ttft)}} {
		if t.timing.StdDev == "" || t.mean == 0 {
			continue
		}
		dev, err := parseSpan(t.timing.StdDev)
		if err != nil {
			return fmt.Errorf("standard deviation: %w", err)
		}
		if dev > 0 {
			c.Jitter.Factor, err = latency.ParseUnit(latency.Millionths, fmt.Sprintf("normal(1, %.6f, min=0.3, max=1.7)", dev.Seconds()/t.mean.Seconds()))
			return err
		}
	}
	return nil
}

// dist is a timing as a distribution.
func (t Timing) dist() (latency.Dist, error) {
	mean, err := parseSpan(t.Mean)
	if err != nil {
		return latency.ParseDist(t.Mean)
	}
	if t.StdDev == "" {
		return latency.Fixed(mean), nil
	}
	dev, err := parseSpan(t.StdDev)
	if err != nil {
		return latency.Dist{}, err
	}
	return latency.ParseDist(fmt.Sprintf("normal(%s, %s)", mean.Duration(), dev.Duration()))
}

// parseSpan reads a duration, or a number of milliseconds.
func parseSpan(v string) (machine.Time, error) {
	if ms, err := strconv.ParseFloat(v, 64); err == nil {
		if !(ms >= 0 && ms <= 3.6e6) {
			return 0, fmt.Errorf("expected 0 to 3600000 milliseconds, got %q", v)
		}
		return machine.Time(math.Round(ms * 1e6)), nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > time.Hour {
		return 0, fmt.Errorf("expected milliseconds or a duration up to 1h such as 50ms, got %q", v)
	}
	return machine.FromDuration(d), nil
}

// transfer chooses the connector by vLLM's names, and by UCX_TLS whether it
// has RDMA.
func (r *Result) transfer() (modelserver.TransferOptions, error) {
	var t modelserver.TransferOptions
	if r.KVTransferLatency.Set() || r.KVTransferTimePerToken.Set() {
		return r.givenTransfer()
	}
	if r.KVTransfer == nil {
		return t, nil
	}
	t.Profile = connectorOf(r.KVTransfer.Connector)
	if !link.UCXHasRDMA(r.UCXTLS) || r.NCCLIBDisable {
		t.Profile = t.Profile.WithoutRDMA()
	}
	return t, nil
}

// givenTransfer makes a link of llm-d-inference-sim's flags: a time for the
// whole cache, or one for each of its tokens.
func (r *Result) givenTransfer() (modelserver.TransferOptions, error) {
	var t modelserver.TransferOptions
	whole, each := machine.Time(0), machine.Time(0)
	for _, x := range []struct {
		flag   string
		timing Timing
		to     *machine.Time
	}{{"kv-cache-transfer-latency", r.KVTransferLatency, &whole}, {"kv-cache-transfer-time-per-token", r.KVTransferTimePerToken, &each}} {
		if x.timing.Set() {
			d, err := parseSpan(x.timing.Mean)
			if err != nil {
				return t, fmt.Errorf("--%s: %w", x.flag, err)
			}
			*x.to = d
		}
	}
	if whole > 0 {
		each = 0 // the whole counts
	}
	speed := int64(fastest)
	if each > 0 {
		speed = min(fastest, engineKVBytes*int64(machine.Second)/int64(each))
	}
	if speed < slowest {
		return t, fmt.Errorf("--kv-cache-transfer-time-per-token: expected at most 16ms, got %q", r.KVTransferTimePerToken.Mean)
	}
	t.Profile = link.Profile{Name: "given", Handshake: whole, RDMAPermille: 1000, Streams: 1, StreamBytesPerSecond: speed}
	t.NIC = link.Wire{BytesPerSecond: speed, RDMA: true}
	return t, nil
}

// fastest and slowest are core/link's limits of a wire, in bytes per second.
const fastest, slowest = 1e14, 8e6

// engineKVBytes is the engine's default of KV bytes per token.
const engineKVBytes = 131072

const maxTokenizerFile = 256 << 20

// readTokenizer reads a tokenizer.json; a model's name, which vLLM would fetch,
// is not one.
func readTokenizer(path string) (t tokens.Tokenizer, raw []byte, err error) {
	if path == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		if !strings.HasSuffix(path, ".json") {
			return nil, nil, nil // a name in a registry; nothing is fetched
		}
		return nil, nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
		if info, err = os.Stat(path); err != nil {
			return nil, nil, fmt.Errorf("--tokenizer: %w", err)
		}
	}
	if info.Size() > maxTokenizerFile {
		return nil, nil, fmt.Errorf("--tokenizer %s: larger than %d bytes", path, maxTokenizerFile)
	}
	if raw, err = os.ReadFile(path); err != nil {
		return nil, nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if t, err = tokens.ParseTokenizerJSON(raw); err != nil {
		return nil, nil, fmt.Errorf("--tokenizer %s: %w", path, err)
	}
	return t, raw, nil
}

func (r *Result) tls() (*tls.Config, error) {
	switch {
	case r.CertFile != "":
		c, err := modelserver.ReloadingTLS(r.CertFile, r.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--ssl-certfile and --ssl-keyfile: %w", err)
		}
		return c, nil
	case r.SelfSigned:
		return modelserver.SelfSignedTLS(r.Host)
	}
	return nil, nil
}
