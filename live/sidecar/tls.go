package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"

	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

// authorities sign the certificates of the legs' servers; nil means the system's.
type authorities = *tlsfiles.Files[*x509.CertPool]

// serverTLS returns the TLS configuration of the sidecar's own ports, or nil for plain HTTP.
func (s *Sidecar) serverTLS() (*tls.Config, error) {
	switch o := s.o.Serve; {
	case !o.On:
		return nil, nil
	case o.CertPath == "":
		return tlsfiles.SelfSigned(nil)
	default:
		files, err := tlsfiles.Dir(o.CertPath, s.o.Log)
		return tlsfiles.Server(files), err
	}
}

// decoderNames returns the names that a decode server's certificate may have: its host and, if it runs beside this
// sidecar, localhost, which the real sidecar uses.
func decoderNames(address string) []string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return []string{"localhost", host}
	}
	return []string{host}
}

// legTLS returns the TLS configuration for a connection to a leg's server. The server's certificate must have one of
// the names.
func legTLS(o LegTLS, names []string, ca authorities) *tls.Config {
	c := &tls.Config{ServerName: names[0], MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	if o.Skip {
		return c
	}
	// Go's own check accepts only one name, and only the authorities known when the configuration was made.
	c.VerifyConnection = func(s tls.ConnectionState) (err error) {
		v := x509.VerifyOptions{Intermediates: x509.NewCertPool()}
		if ca != nil {
			v.Roots = ca.Get()
		}
		for _, cert := range s.PeerCertificates[1:] {
			v.Intermediates.AddCert(cert)
		}
		for _, v.DNSName = range names {
			if _, err = s.PeerCertificates[0].Verify(v); err == nil {
				return nil
			}
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return c
}
