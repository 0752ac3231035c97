package program

import (
	"fmt"
	"net/netip"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
)

type configCmd struct {
	File      string   `arg:"" optional:"" name:"scenario.yaml" help:"The scenario whose gateway to show. Left out: the embedded one."`
	Endpoints []string `name:"endpoint" sep:"none" placeholder:"IP:PORT" help:"A model server; repeatable. A pool with a fallback lists them."`
	EPP       string   `name:"epp" placeholder:"HOST:PORT" help:"Where the endpoint picker listens, instead of the well-known port."`
}

func (c *configCmd) Help() string {
	return `Prints the Envoy configuration that a run would use, and starts nothing. A run takes free ports unless it has --keep; here the well-known ones are shown.

Examples:
  windtunnel config
  windtunnel config mine.yaml > envoy.yaml && envoy -c envoy.yaml
  windtunnel config --epp 10.0.0.7:9002 --endpoint 10.0.0.8:8000`
}

func (c *configCmd) Run(o *outside) error {
	s := scenario.Embedded()
	if c.File != "" {
		var err error
		if s, err = loadScenario(o, c.File); err != nil {
			return err
		}
	}
	if c.EPP != "" {
		if err := scenario.CheckEndpoint(c.EPP); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--epp: %w; expected HOST:PORT such as 127.0.0.1:9002", err))
		}
	}
	for _, e := range c.Endpoints {
		if _, err := netip.ParseAddrPort(e); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--endpoint: %q is not IP:PORT; expected a literal address such as 10.0.0.8:8000", e))
		}
	}
	epp, endpoints := c.EPP, c.Endpoints
	if epp == "" {
		epp = stack.KeptExtProc
	}
	if len(endpoints) == 0 {
		endpoints = s.Pools[0].Endpoints
	}
	for i := range s.Pools[0].Replicas {
		if len(c.Endpoints)+len(s.Pools[0].Endpoints) == 0 {
			endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", 8000+i))
		}
	}
	text, err := stack.GatewayConfig(s, epp, endpoints, true).YAML()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	_, err = fmt.Fprintf(o.Stdout, "# For Envoy 1.36 or newer; written by windtunnel config.\n%s", text)
	return err
}
