package gateway

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/kv/link"
)

// The environment variables and flags that configure a model server's KV transfers.
const (
	envUCX         = "UCX_TLS"
	envSideChannel = "VLLM_NIXL_SIDE_CHANNEL_PORT"
	flagCompress   = "kv-transfer-compression"

	// withoutRDMA are document 003's UCX transports for hosts without RDMA.
	withoutRDMA = "cuda_ipc,cuda_copy,tcp"
)

// KVTransfer holds the settings for fetching KV caches in a model server's command line and environment.
type KVTransfer struct {
	// Compress sends 16-bit caches as INT8. TCPOnly sends them without RDMA.
	Compress, TCPOnly bool
	// SideChannel is the port that serves requests for caches, or 0 where it is not set.
	SideChannel int
}

// KVTransfer returns the settings of the container's model server.
func (c *Container) KVTransfer() (t KVTransfer) {
	ucx, _ := c.Variable(envUCX)
	port, _ := c.Variable(envSideChannel)
	compress, _ := c.Flag(flagCompress)
	t.TCPOnly, t.Compress = !link.UCXHasRDMA(ucx), compress == "int8"
	t.SideChannel, _ = strconv.Atoi(port) // the model server reports a bad value
	return t
}

// Variable returns a variable of the container's environment, or of its script's.
func (c *Container) Variable(name string) (value string, given bool) {
	if value, given = c.script.Env[name]; given {
		return value, true
	}
	i := slices.IndexFunc(c.Env, func(e EnvVar) bool { return e.Name == name })
	if i < 0 {
		return "", false
	}
	return c.Env[i].Value, true
}

// transfers makes model servers send caches by the settings of the document 003 pool that selects them. A container's
// own settings take precedence.
func (b *builder) transfers() {
	for i := range b.Pools {
		p := &b.Pools[i]
		if p.KServe == nil || !p.KServe.Disaggregation.Enabled {
			continue
		}
		for _, w := range b.Selected(p.Namespace, p.Selector) {
			if c, role := w.Serves(); role == RoleServer {
				b.transfer(p, c)
			}
		}
	}
}

func (b *builder) transfer(p *objects.Pool, c *Container) {
	t := &p.KServe.Disaggregation.Transfer
	own := c.KVTransfer()
	differs := func(what, field string) {
		b.note(c.At.Problem(fmt.Sprintf("container %s: %s, and connector.config.%s of InferencePool %s says otherwise",
			c.Name, what, field, p.Name), "", "what the container says counts").Error())
	}
	ucx, given := c.Variable(envUCX)
	switch {
	case given && (own.TCPOnly && t.RDMA || !own.TCPOnly && t.NoRDMA):
		differs(envUCX+" is "+ucx, "rdmaEnabled")
	case !given && t.NoRDMA:
		c.Env = append(slices.Clone(c.Env), EnvVar{Name: envUCX, Value: withoutRDMA})
	}
	if _, given := c.Flag(flagCompress); t.Compressed && !given {
		c.added = append(slices.Clone(c.added), "--"+flagCompress+"=int8")
	}
	port, given := c.Variable(envSideChannel)
	switch {
	case t.FirstPort == 0:
	case given && (own.SideChannel < t.FirstPort || own.SideChannel > t.LastPort):
		differs(envSideChannel+" is "+port, "sideChannelPortRange")
	case !given:
		c.Env = append(slices.Clone(c.Env), EnvVar{Name: envSideChannel, Value: strconv.Itoa(t.FirstPort)})
	}
	if text, given := c.Flag("data-parallel-size"); given && t.FirstPort > 0 {
		first, _ := c.Variable(envSideChannel)
		from, _ := strconv.Atoi(first)
		if n, err := strconv.Atoi(text); err == nil && from <= t.LastPort && from+n-1 > t.LastPort {
			b.mistake(c.At.Problem(fmt.Sprintf(
				"container %s: its %d data-parallel ranks have side channels at ports %d to %d", c.Name, n, from,
				from+n-1),
				fmt.Sprintf("at most %d, the last of sideChannelPortRange of InferencePool %s", t.LastPort, p.Name),
				"a wider range, or fewer ranks"))
		}
	}
}
