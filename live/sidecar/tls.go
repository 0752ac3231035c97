package sidecar

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

// authorities sign the legs' servers; nil is the system's.
type authorities = *tlsfiles.Files[*x509.CertPool]

// serverTLS is the configuration of the sidecar's own port; nil is none.
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

// legTLS is the configuration of the way to a leg's server.
func legTLS(o LegTLS, name string, ca authorities) *tls.Config {
	c := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Skip}
	if o.Skip || ca == nil {
		return c
	}
	c.InsecureSkipVerify = true // verified below, against the file's certificates of the moment
	c.VerifyConnection = func(s tls.ConnectionState) error {
		v := x509.VerifyOptions{Roots: ca.Get(), DNSName: name, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			v.Intermediates.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(v)
		return err
	}
	return c
}
