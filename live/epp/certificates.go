package epp

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/credentials"

	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

// serverTLS returns the credentials of ext_proc. Envoy's filter does not verify a self-signed certificate, as with the
// real EPP.
func (o *Certificates) serverTLS(log *slog.Logger) (credentials.TransportCredentials, error) {
	var c *tls.Config
	var err error
	if o.CertPath == "" {
		c, err = tlsfiles.SelfSigned(nil, "h2")
	} else {
		var files *tlsfiles.Files[*tls.Certificate]
		files, err = tlsfiles.Dir(o.CertPath, log)
		c = tlsfiles.Server(files, "h2")
		if err == nil && !o.CertReload {
			c.GetCertificate, c.Certificates = nil, []tls.Certificate{*files.Get()}
		}
	}
	if err != nil {
		return nil, err
	}
	c.MinVersion, c.CipherSuites = cmp.Or(o.TLSMinVersion, c.MinVersion), o.TLSCipherSuites
	return credentials.NewTLS(c), nil
}

// metricsTLS returns the TLS configuration of /metrics.
func (o *Certificates) metricsTLS(log *slog.Logger) (*tls.Config, error) {
	files, err := tlsfiles.Dir(o.MetricsCertPath, log)
	if err != nil {
		return nil, err
	}
	c := tlsfiles.Server(files)
	if o.MetricsClientCA == "" {
		return c, nil
	}
	readers, err := tlsfiles.Authorities(o.MetricsClientCA, false, log)
	if err != nil {
		return nil, fmt.Errorf("the authorities of the metrics' readers cannot be used: %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.ClientCAs = readers.Get()
		return now, nil
	}
	return c, nil
}
