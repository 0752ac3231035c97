package mirror

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/kvmanager"
)

// KVManager is windtunnel-k8s kv-manager: the KV-cache manager, which dials the pods of a pool.
type KVManager struct {
	parts.KVManager
	Cluster
	PoolName      string `placeholder:"NAME" help:"Dial the ready pods of this InferencePool for their KV events, while they are ready."`
	PoolNamespace string `placeholder:"NAME" help:"Namespace of the pool (NAMESPACE, default)."`
	EventsPort    int    `default:"5557" help:"Port of a dialed pod's KV events; the servers of further target ports have the next ones."`
	PodReplayPort int    `help:"Port at which a dialed pod replays missed events; 0: it replays none."`
	Objects       string `placeholder:"DIR" help:"Directory of YAML files instead of an API server: the InferencePool and its Pods."`
}

// Help returns the description of the command.
func (KVManager) Help() string {
	return parts.KVManager{}.Help() + `

With --pool-name the manager needs no address of a model server: it dials every ready pod of the pool, as
llm-d's pod discovery does, and drops the blocks of pods that leave. A pod is known as IP:PORT, with its target port.

  windtunnel-k8s kv-manager --listen 0.0.0.0 --zmq-bind none --pool-name llama`
}

// Run serves until an interruption. It asks an API server only with --pool-name.
func (c *KVManager) Run(o *console.Console) error {
	if c.PoolName == "" {
		return c.KVManager.Run(o)
	}
	for flag, port := range map[string]int{"--events-port": c.EventsPort, "--pod-replay-port": c.PodReplayPort} {
		if port < 0 || port > 65535 || port == 0 && flag == "--events-port" {
			return exit.Errorf(exit.Usage, "%s: found %d; expected a port", flag, port)
		}
	}
	from := Options{Namespace: namespaceOf(o, c.PoolNamespace), Resources: Pool[:3], Check: PoolObject,
		Metrics: NewMetrics()}
	serve := func(from Options) error {
		var following *watch.Watch
		defer func() { following.Close() }()
		c.Beside = func(m *kvmanager.Manager) (err error) {
			dialed := map[string]bool{}
			following, err = watch.Dir("objects in "+from.Dir, from.Dir, o.Logger(slog.LevelInfo), files.IsManifest,
				func() error { return c.dial(m, &from, dialed) })
			return errors.Join(err, m.Register(from.Metrics))
		}
		return c.KVManager.Run(o)
	}
	if from.Dir = c.Objects; from.Dir != "" {
		return serve(from)
	}
	return c.Mirror(o, from, serve)
}

// dial connects to the pool's endpoints, and leaves those that are no longer its endpoints.
func (c *KVManager) dial(m *kvmanager.Manager, from *Options, dialed map[string]bool) error {
	set := &objects.Set{DefaultNamespace: from.Namespace}
	if err := files.Manifests("objects", from.Dir, objects.MaxFileBytes, set.Add); err != nil {
		return err
	}
	now := map[string]bool{}
	var errs []error
	for _, e := range set.Select(from.Namespace, c.PoolName).Endpoints {
		pod := kvmanager.Pod{Name: kv.Topic{Pod: e.HostPort(), Model: c.Model},
			Endpoint: fmt.Sprintf("tcp://%s:%d", e.Address, c.EventsPort+e.Rank)}
		if c.PodReplayPort > 0 {
			pod.Replay = fmt.Sprintf("tcp://%s:%d", e.Address, c.PodReplayPort+e.Rank)
		}
		now[pod.Name.Pod] = true
		if !dialed[pod.Name.Pod] {
			errs = append(errs, m.Dial(pod))
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(dialed)) {
		if !now[pod] {
			m.Hangup(pod)
		}
	}
	clear(dialed)
	maps.Copy(dialed, now)
	return errors.Join(errs...)
}
