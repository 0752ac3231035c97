package epp

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// serverTLS is what ext_proc is served with.
func serverTLS(o *StandaloneOptions) (credentials.TransportCredentials, error) {
	c := &tls.Config{MinVersion: cmp.Or(o.TLSMinVersion, tls.VersionTLS12), CipherSuites: o.TLSCipherSuites, NextProtos: []string{"h2"}}
	if o.CertPath == "" {
		cert, err := selfSigned()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{cert}
		return credentials.NewTLS(c), nil
	}
	files := &certificateFiles{dir: o.CertPath, reload: o.CertReload}
	if _, err := files.certificate(nil); err != nil {
		return nil, err
	}
	c.GetCertificate = files.certificate
	return credentials.NewTLS(c), nil
}

// metricsTLS is what /metrics is served with.
func metricsTLS(o *StandaloneOptions) (*tls.Config, error) {
	files := &certificateFiles{dir: o.MetricsCertPath, reload: true}
	if _, err := files.certificate(nil); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.certificate}
	if o.MetricsClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(o.MetricsClientCA)
	if err != nil {
		return nil, fmt.Errorf("the authorities of the metrics' readers cannot be read: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no PEM certificate in %s", o.MetricsClientCA)
	}
	return c, nil
}

// certificateFiles are tls.crt and tls.key in a directory, read again when
// they have changed and reload is set. A pair that cannot be read is no news:
// the old one stays.
type certificateFiles struct {
	dir    string
	reload bool

	mu   sync.Mutex
	cert *tls.Certificate
	read time.Time // when tls.crt was changed that was read
}

func (f *certificateFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	crt := filepath.Join(f.dir, "tls.crt")
	var changed time.Time
	if info, err := os.Stat(crt); err == nil {
		changed = info.ModTime()
	}
	if f.cert != nil && (!f.reload || changed.Equal(f.read)) {
		return f.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(crt, filepath.Join(f.dir, "tls.key"))
	switch {
	case err == nil:
		f.cert, f.read = &cert, changed
	case f.cert == nil:
		return nil, fmt.Errorf("the certificate in %s cannot be used: %w", f.dir, err)
	}
	return f.cert, nil
}

// selfSigned makes a certificate that is good for a year; Envoy's filter does
// not verify it, as with the real EPP.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "windtunnel-epp"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, errors.Join(errors.New("cannot make a certificate"), err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
