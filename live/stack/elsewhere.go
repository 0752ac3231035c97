package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/internal/child"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Elsewhere is an external endpoint picker. Its zero value is none.
type Elsewhere struct {
	// Address is where it listens, as host:port. With a Command it may be empty:
	// a free port of 127.0.0.1.
	Address string
	// Command starts it, in a shell; empty if it is started by other means. Its environment names the endpoints' file
	// and its ports: ENDPOINTS_FILE, GRPC_PORT, GRPC_HEALTH_PORT, METRICS_PORT.
	Command string
	// EndpointsFile is where the endpoints are written for its file-discovery;
	// empty is endpoints.yaml in the stack's directory.
	EndpointsFile string
	// Wait is how long the stack waits for its first answer; 0 is a minute.
	Wait time.Duration
}

func (x *Elsewhere) given() bool { return x.Address != "" || x.Command != "" }

// unsure is how long the start waits for a picker that answers, but with none of the endpoints. After that it is used
// as it is.
const unsure = 10 * time.Second

// commandPatience is how long a picker of --epp-command may take to end.
const commandPatience = time.Minute

// AbsentError says that the external endpoint picker never answered.
type AbsentError struct{ Message string }

func (e *AbsentError) Error() string { return e.Message }

// writeEndpoints writes the file that the real EPP's file-discovery reads. A reader sees the old file or the new one
// as a whole.
func (s *Pool) writeEndpoints() error {
	// Sidecars admit every server of the pool, also an absent one.
	list := s.listEndpoints(!s.o.EPP.given())
	for _, e := range list {
		e.Name = strings.NewReplacer(":", "-", ".", "-").Replace(e.Name)
	}
	return cluster.WriteEndpoints(s.EndpointsFile(), list)
}

// EndpointsFile is the file from which an external EPP can read the endpoints.
func (s *Pool) EndpointsFile() string {
	name := "endpoints.yaml"
	if s.index > 0 {
		name = "endpoints-" + s.pool.Name + ".yaml"
	}
	return cmp.Or(s.o.EPP.EndpointsFile, filepath.Join(s.Dir, name))
}

// ExtProc is where the endpoint pickers listen, external or not; nil if there is none.
func (s *Pool) ExtProc() (at []string) {
	for _, k := range s.Pickers {
		at = append(at, k.Server().Addr())
	}
	if s.o.EPP.given() {
		at = []string{s.o.EPP.Address}
	}
	return at
}

// startCommand starts the external picker.
func (s *Pool) startCommand() error {
	x := &s.o.EPP
	ports := make([]string, 3)
	for i := range ports {
		if i == 0 && x.Address != "" {
			_, ports[i], _ = net.SplitHostPort(x.Address) // it has been checked
			continue
		}
		l, err := serve.Listen("a port of --epp-command", anyPort)
		if err != nil {
			return err
		}
		defer l.Close() // all three at once, so that they differ
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	x.Address = cmp.Or(x.Address, net.JoinHostPort("127.0.0.1", ports[0]))
	c := exec.Command("sh", "-c", x.Command)
	c.Env = append(os.Environ(), "ENDPOINTS_FILE="+s.EndpointsFile(), "GRPC_PORT="+ports[0],
		"GRPC_HEALTH_PORT="+ports[1], "METRICS_PORT="+ports[2])
	var err error
	if s.command, err = child.Run(c, filepath.Join(s.Dir, "epp.log")); err != nil {
		return fmt.Errorf("--epp-command: %w", err)
	}
	return nil
}

// commandFailed says how the picker of --epp-command ended by itself, with the end of its log; nil while it runs or
// if there is none.
func (s *Pool) commandFailed() error {
	if s.command == nil || !s.command.Ended() {
		return nil
	}
	how := "exit status 0"
	if err := s.command.Wait(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("the endpoint picker of --epp-command ended (%s); its log, %s, ends with\n%s", how, s.command.Log,
		s.command.Tail(2000))
}

// awaitPicker returns when the external picker picks one of the endpoints for a request, or has answered otherwise for
// as long as unsure.
func (s *Pool) awaitPicker(ctx context.Context) error {
	x := &s.o.EPP
	wait := cmp.Or(x.Wait, time.Minute)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+x.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return err
	}
	defer conn.Close()
	said, answered := "", time.Time{}
	for {
		picked, what := s.probe(ctx, conn)
		if picked {
			return nil
		}
		if err := s.commandFailed(); err != nil {
			return &AbsentError{err.Error()}
		}
		if strings.HasPrefix(what, speaks) {
			if answered.IsZero() {
				answered = time.Now()
			} else if time.Since(answered) > unsure {
				return nil
			}
		} else {
			answered = time.Time{}
		}
		if what != said && ctx.Err() == nil {
			s.o.Report(what + "\n  the endpoints are in " + s.EndpointsFile())
		}
		if ctx.Err() == nil {
			said = what
		}
		if !pause.For(ctx, 100*time.Millisecond) {
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return &AbsentError{fmt.Sprintf("no endpoint picker answered within %v: %s", wait, said)}
		}
	}
}

// speaks begins the texts of probe for a picker that speaks ext_proc.
const speaks = "it answers, and "

// probe asks the picker for the endpoint of a request without a body, which changes the least in it.
func (s *Pool) probe(ctx context.Context, conn *grpc.ClientConn) (picked bool, what string) {
	conn.ResetConnectBackoff() // the caller decides how often to ask
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		what = "waiting for an endpoint picker: " + status.Convert(err).Message()
		if strings.Contains(what, "server preface") {
			what += "; if it speaks TLS, start it with --secure-serving=false"
		}
		return false, what
	}
	headers := &corev3.HeaderMap{}
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "windtunnel"},
		{":path", "/v1/models"}, {"x-request-id", "windtunnel-probe"}} {
		headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	// Recv returns the reason of a failure
	_ = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: headers, EndOfStream: true}}})
	r, err := stream.Recv()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return true, "" // it took the stream, and waits for a body or never answers
	case err != nil:
		return false, speaks + "fails: " + status.Convert(err).Message()
	}
	if i := r.GetImmediateResponse(); i != nil {
		return false, fmt.Sprintf("%sknows none of the endpoints yet: status %d %s", speaks, i.GetStatus().GetCode(),
			strings.TrimSpace(string(i.GetBody())))
	}
	to := destination(r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders())
	for _, address := range strings.Split(to, ",") {
		if slices.Contains(s.Endpoints, strings.TrimSpace(address)) {
			return true, ""
		}
	}
	if _, err := netip.ParseAddrPort(to); err != nil {
		return true, "" // it needs a body first
	}
	return false, speaks + "picks " + to + ", which is not one of the endpoints"
}

func destination(set []*corev3.HeaderValueOption) string {
	for _, h := range set {
		if strings.EqualFold(h.GetHeader().GetKey(), picker.HeaderDestination) {
			return cmp.Or(string(h.GetHeader().GetRawValue()), h.GetHeader().GetValue())
		}
	}
	return ""
}
