package sidecar

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// recheck is how often files of certificates are looked at again.
const recheck = time.Second

// reloaded is something read from files, and read again when one has changed.
// What cannot be read any more stays as it was.
type reloaded[T any] struct {
	files []string
	read  func() (T, error)

	mu      sync.Mutex
	value   T
	stamp   string
	checked time.Time
}

func newReloaded[T any](read func() (T, error), files ...string) (*reloaded[T], error) {
	r := &reloaded[T]{files: files, read: read, stamp: stamps(files), checked: time.Now()}
	var err error
	r.value, err = read()
	return r, err
}

func (r *reloaded[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.checked) >= recheck {
		r.checked = now
		if s := stamps(r.files); s != r.stamp {
			if v, err := r.read(); err == nil {
				r.value, r.stamp = v, s
			}
		}
	}
	return r.value
}

func stamps(files []string) string {
	s := ""
	for _, f := range files {
		if i, err := os.Stat(f); err == nil {
			s += fmt.Sprint(i.ModTime().UnixNano(), i.Size(), " ")
		}
	}
	return s
}

// serverTLS is the configuration of the sidecar's own port.
func serverTLS(o ServeTLS) (*tls.Config, error) {
	if !o.On {
		return nil, nil
	}
	if o.CertPath == "" {
		cert, err := selfSigned()
		return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, err
	}
	crt, key := filepath.Join(o.CertPath, "tls.crt"), filepath.Join(o.CertPath, "tls.key")
	certs, err := newReloaded(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(crt, key)
		return &c, err
	}, crt, key)
	if err != nil {
		return nil, fmt.Errorf("certificate in %s: %w", o.CertPath, err)
	}
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certs.get(), nil }, MinVersion: tls.VersionTLS12}, nil
}

// selfSigned makes a certificate for this process.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "windtunnel sidecar"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// pool reads the certificates that sign the legs' servers; nil is the system's.
func caPool(file string) (*reloaded[*x509.CertPool], error) {
	if file == "" {
		return nil, nil
	}
	return newReloaded(func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p, err := x509.SystemCertPool()
		if err != nil {
			p = x509.NewCertPool()
		}
		if !p.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: there is no certificate in it", file)
		}
		return p, nil
	}, file)
}

// legTLS is the configuration of the way to a leg's server.
func legTLS(o LegTLS, name string, ca *reloaded[*x509.CertPool]) *tls.Config {
	c := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Skip}
	if o.Skip || ca == nil {
		return c
	}
	c.InsecureSkipVerify = true // verified below, against the file's certificates of the moment
	c.VerifyConnection = func(s tls.ConnectionState) error {
		v := x509.VerifyOptions{Roots: ca.get(), DNSName: name, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			v.Intermediates.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(v)
		return err
	}
	return c
}
