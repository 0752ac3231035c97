//go:build unix

package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/credentials"
)

// A payload processor in front of the picker sees the same request, and a
// held one stays held through both.
func TestBodyRouter(t *testing.T) {
	t.Parallel()
	server := (&fakeServer{handle: holding(20*time.Millisecond, 8)}).start(t)
	picker := (&fakePicker{destination: func() string { return server.addr }, held: true, tail: "part two"}).start(t)
	router := (&fakePicker{hook: passOn}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	c.BodyRouter = &Processor{Addresses: []string{router.addr}}
	p := startEnvoy(t, c)
	code, body := newClient(t, p, false).post(strings.NewReader("part one"))
	if code != 200 || body != "first part two over HTTP/1.1" {
		t.Errorf("got %d %q", code, body)
	}
	if router.seen.Load() != 1 || picker.seen.Load() != 1 {
		t.Errorf("asked %d and %d times, want once each", router.seen.Load(), picker.seen.Load())
	}
	idle(t, p)
}

// passOn is a full-duplex processor that changes nothing.
func passOn(s extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		out := &extprocv3.ProcessingResponse{}
		switch r := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_RequestBody:
			out.Response = &extprocv3.ProcessingResponse_RequestBody{
				RequestBody: streamed(r.RequestBody.Body, r.RequestBody.EndOfStream)}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			out.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			out.Response = &extprocv3.ProcessingResponse_ResponseBody{
				ResponseBody: streamed(r.ResponseBody.Body, r.ResponseBody.EndOfStream)}
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// TLS to a picker with a certificate of its own making, as today's EPP has:
// accepted unverified, accepted by its own CA, refused by another name.
func TestPickerTLS(t *testing.T) {
	t.Parallel()
	server := (&fakeServer{}).start(t)
	cert, caFile := selfSigned(t, "picker.test")
	picker := (&fakePicker{destination: func() string { return server.addr },
		creds: credentials.NewTLS(
			&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})}).start(t)
	for name, tc := range map[string]struct {
		tls  TLS
		code int
	}{
		"unverified":    {TLS{}, 200},
		"verified":      {TLS{CAFile: caFile, ServerName: "picker.test"}, 200},
		"another name":  {TLS{CAFile: caFile, ServerName: "other.test"}, 503},
		"only its name": {TLS{ServerName: "whatever"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			c := onePool()
			c.Pools[0].Picker.Addresses = []string{picker.addr}
			c.Pools[0].Picker.TLS = &tc.tls
			p := startEnvoy(t, c)
			if code, body := newClient(t, p, false).post(strings.NewReader("x")); code != tc.code {
				t.Errorf("got %d %q, want %d", code, body, tc.code)
			}
			idle(t, p)
		})
	}
}

func selfSigned(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
