package parts

import (
	"errors"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// moriioFlags are the flags of MoRI-IO, a transport for nixlv2.
type moriioFlags struct {
	Write    bool          `name:"write-mode" help:"MoRI-IO's WRITE mode under nixlv2: the prefill server writes into the decode server's blocks."`
	Parallel bool          `name:"parallel-dispatch" help:"Send both legs at once; needs --moriio-write-mode."`
	Wait     time.Duration `name:"parallel-decode-wait-timeout" default:"30s" help:"How long the decode leg may wait for the prefill leg then."`

	LocalIP          string   `name:"local-pod-ip" placeholder:"HOST" fromenv:"POD_IP" help:"Address or name of the decode pod, for the prefill leg."`
	DecodeNotify     int      `name:"decode-notify-port" default:"61005" help:"Notify port of the decode pod."`
	DecodeHandshake  int      `name:"decode-handshake-port" default:"6301" help:"Handshake port of the decode pod."`
	PrefillNotify    int      `name:"prefill-notify-port" default:"61005" help:"Notify port of prefill pods."`
	PrefillHandshake int      `name:"prefill-handshake-port" default:"6301" help:"Handshake port of prefill pods."`
	TPSize           int      `default:"1" help:"Tensor-parallel size of the engines."`
	DPSize           int      `default:"1" help:"Data-parallel size of the engines."`
	DPSizeLocal      int      `help:"Data-parallel ranks in one pod."`
	RemoteHosts      []string `placeholder:"HOST" help:"Pods of the prefill side, by address or name."`
	DecodeHosts      []string `placeholder:"HOST" help:"Pods of the decode side."`
	TTL              int      `name:"resolve-ttl" default:"30" hidden:"" fromenv:"MORIIO_DNS_RESOLVE_TTL_SECONDS" help:"Seconds until a name is looked up again."`
	Timeout          int      `name:"resolve-timeout" default:"5" hidden:"" fromenv:"MORIIO_DNS_RESOLVE_TIMEOUT_SECONDS" help:"Seconds that a look-up may take."`
}

// config checks the flags as the real sidecar does.
func (m *moriioFlags) config() (connector.MoRIIO, error) {
	c := connector.MoRIIO{Write: m.Write, Parallel: m.Parallel, Wait: machine.FromDuration(m.Wait), TPSize: m.TPSize,
		DPSize: m.DPSize, DPSizeLocal: m.DPSizeLocal,
		DecodeNotifyPort: m.DecodeNotify, DecodeHandshakePort: m.DecodeHandshake, PrefillNotifyPort: m.PrefillNotify,
		PrefillHandshakePort: m.PrefillHandshake}
	switch {
	case m.Write && m.LocalIP == "":
		return c, errors.New("--moriio-write-mode needs --moriio-local-pod-ip, or POD_IP in the environment: the " +
			"address where prefill servers reach this pod")
	case m.Parallel && !m.Write:
		return c, errors.New("--moriio-parallel-dispatch needs --moriio-write-mode")
	case m.TPSize < 1 || m.DPSize < 1 || m.DPSizeLocal < 0:
		return c, errors.New("--moriio-tp-size and --moriio-dp-size: expected at least 1; --moriio-dp-size-local: at " +
			"least 0")
	}
	for _, hosts := range []struct {
		flag string
		list []string
	}{{"--moriio-remote-hosts", m.RemoteHosts}, {"--moriio-decode-hosts", m.DecodeHosts}} {
		n := len(hosts.list)
		if n > 1 && (m.DPSizeLocal == 0 || m.DPSize%m.DPSizeLocal != 0 || m.DPSize/m.DPSizeLocal != n) {
			return c, fmt.Errorf("%s names %d pods, so --moriio-dp-size (%d) must be %d times --moriio-dp-size-local "+
				"(%d)", hosts.flag, n, m.DPSize, n, m.DPSizeLocal)
		}
	}
	return c, nil
}
