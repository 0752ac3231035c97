package program

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
)

type configCmd struct {
	File      string   `arg:"" optional:"" name:"scenario.yaml" help:"The scenario, else the embedded one."`
	Endpoints []string `name:"endpoint" sep:"none" placeholder:"IP:PORT" help:"A model server of a pool with a fallback. Repeatable."`
	EPP       string   `placeholder:"HOST:PORT" help:"Address of the endpoint picker, instead of the well-known port."`
	Picker    bool     `help:"Print the endpoint picker's configuration instead: the scenario's own, or the default."`
	Pool      string   `placeholder:"NAME" help:"With --picker: the pool. Left out: the first one."`
	Discovery string   `name:"endpoints-file" placeholder:"FILE" help:"With --picker: add file-discovery with this file."`
}

func (c *configCmd) Help() string {
	return `Prints the configuration of Envoy, or of the endpoint picker, that a run would use, and starts nothing.
A run takes free ports unless it has --keep; this shows the well-known ones. The endpoint picker of
windtunnel epp and that of llm-d need --endpoints-file without Kubernetes.

Examples:
  windtunnel config
  windtunnel config mine.yaml > envoy.yaml && envoy -c envoy.yaml
  windtunnel config --epp 10.0.0.7:9002 --endpoint 10.0.0.8:8000
  windtunnel config examples/pd.yaml --picker > epp.yaml            # what a pool with prefill servers gets
  windtunnel config --picker --endpoints-file endpoints.yaml > epp.yaml && \
    windtunnel epp --pool-name p --secure-serving=false --config-file epp.yaml`
}

func (c *configCmd) Run(o *outside) error {
	s, err := loadScenario(o, c.File)
	if err != nil {
		return err
	}
	if c.Picker {
		p := &s.Pools[0]
		if c.Pool != "" {
			if p = s.Pool(c.Pool); p == nil {
				return exit.Errorf(exit.Usage, "--pool: the scenario has no pool %q", c.Pool)
			}
		}
		return c.picker(o, p)
	}
	if c.Pool != "" {
		return exit.Errorf(exit.Usage, "--pool selects an endpoint picker; expected "+
			"--picker beside it")
	}
	if c.Discovery != "" {
		return exit.Errorf(exit.Usage, "--endpoints-file is for the endpoint picker's configuration; expected "+
			"--picker beside it")
	}
	if err := checkEPP(c.EPP); err != nil {
		return err
	}
	for _, e := range c.Endpoints {
		if _, err := netip.ParseAddrPort(e); err != nil {
			return exit.Errorf(exit.Usage, "--endpoint: %q is not IP:PORT; expected a literal address such as "+
				"10.0.0.8:8000", e)
		}
	}
	if s.Gateway() != nil {
		return exit.Hint(exit.Input,
			fmt.Errorf("%s: Envoy receives the configuration of manifests while it runs, and there is no file with it",
				s.File),
			"windtunnel up -f "+s.Manifests+" --dry-run prints the routes, and /config_dump of a running Envoy all")
	}
	p, err := s.Plan()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	text, err := stack.GatewayConfig(p, c.listening(s), "127.0.0.1:9009", stack.KeptGateway).YAML()
	if err != nil {
		return exit.With(exit.Input, err)
	}
	_, err = fmt.Fprintf(o.Stdout, "# For Envoy 1.36 or newer; written by windtunnel config.\n%s", text)
	return err
}

// listening returns the assumed addresses of the pools' parts: pickers on the well-known port and each tenth port above
// it, and model servers from port 8000 on.
func (c *configCmd) listening(s *scenario.Scenario) []stack.Listening {
	var out []stack.Listening
	pickers, servers := 0, 0
	for i := range s.Pools {
		p := &s.Pools[i]
		at := stack.Listening{Endpoints: p.Endpoints}
		for range p.EPP.Replicas {
			at.Pickers = append(at.Pickers, fmt.Sprintf("127.0.0.1:%d", eppPort+10*pickers))
			pickers++
		}
		if i == 0 && c.EPP != "" {
			at.Pickers = []string{c.EPP}
		}
		if i == 0 && len(c.Endpoints) > 0 {
			at.Endpoints = c.Endpoints
		}
		simulated := len(at.Endpoints) == 0
		for range p.Replicas {
			if simulated {
				at.Endpoints = append(at.Endpoints, fmt.Sprintf("127.0.0.1:%d", 8000+servers))
			}
			servers++
		}
		out = append(out, at)
	}
	return out
}

// checkEPP returns an error for an address of an endpoint picker that is neither empty nor HOST:PORT.
func checkEPP(address string) error {
	if address == "" {
		return nil
	}
	if err := scenario.CheckEndpoint(address); err != nil {
		return exit.Errorf(exit.Usage, "--epp: %w; expected HOST:PORT such as 127.0.0.1:9002", err)
	}
	return nil
}

// eppPort is the well-known port of the endpoint picker.
const eppPort = 9002

// picker prints the endpoint picker's configuration.
func (c *configCmd) picker(o *outside, p *scenario.Pool) error {
	text := bytes.TrimLeft(p.EPP.Config.Text, "\n") // blank lines keep the line numbers of the scenario
	if c.Discovery != "" {
		var err error
		if text, err = discovering(text, c.Discovery); err != nil {
			return exit.Errorf(exit.Input, "%s: %w", p.EPP.Config, err)
		}
	}
	_, err := o.Stdout.Write(text)
	return err
}

// discovering adds file-discovery with this file to a configuration.
func discovering(text []byte, file string) ([]byte, error) {
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	plugins, _ := config["plugins"].([]any)
	layer, _ := config["dataLayer"].(map[string]any)
	if config["profiles"] != nil {
		return nil, errors.New("--endpoints-file: the configuration has the form of document 003 " +
			"(docs/documents.md#document-003); expected an EndpointPickerConfig")
	}
	if layer["discovery"] != nil {
		return nil, errors.New("--endpoints-file: the configuration has dataLayer.discovery already")
	}
	if layer == nil {
		layer = map[string]any{}
	}
	const name = "endpoints-file"
	layer["discovery"] = map[string]any{"pluginRef": name}
	config["plugins"] = append(plugins,
		map[string]any{"name": name, "type": "file-discovery",
			"parameters": map[string]any{"path": file, "watchFile": true}})
	config["dataLayer"] = layer
	return yaml.Marshal(config)
}
