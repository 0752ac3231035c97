// Package tlsfiles provides the certificates that windtunnel's parts serve and trust: from files, which are read
// again when they change, or generated for the process.
package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/internal/files"
)

// Files holds a value read from files. It reads them again after one of them has changed.
type Files[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu          sync.Mutex
	value       T
	used, tried string // stamps
}

func open[T any](log *slog.Logger, read func() (T, error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, read: read, log: log}
	f.used = f.stamps()
	f.tried = f.used
	var err error
	f.value, err = read()
	return f, err
}

// Get returns the files' current value. It checks the files at each call, which costs little compared with a
// handshake. After an error it keeps the old value, because files are usually replaced one after the other, and logs
// the error once per change.
func (f *Files[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.stamps()
	if now == f.used {
		return f.value
	}
	v, err := f.read()
	if err == nil {
		f.value, f.used = v, now
	} else if now != f.tried && f.log != nil {
		f.log.Warn("changed TLS files have an error; the old ones stay in use", "files", f.paths, "error", err)
	}
	f.tried = now
	return f.value
}

func (f *Files[T]) stamps() string {
	s := ""
	for _, path := range f.paths {
		if i, err := os.Stat(path); err == nil {
			s += fmt.Sprint(i.ModTime().UnixNano(), i.Size(), " ")
		}
	}
	return s
}

// Pair reads a certificate and its key from two files.
func Pair(cert, key string, log *slog.Logger) (*Files[*tls.Certificate], error) {
	return open(log, func() (*tls.Certificate, error) {
		c, err := files.KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with the key %s: %w", cert, key, err)
		}
		return &c, nil
	}, cert, key)
}

// Dir is Pair for tls.crt and tls.key, as Kubernetes mounts a secret.
func Dir(dir string, log *slog.Logger) (*Files[*tls.Certificate], error) {
	return Pair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), log)
}

// Server returns a server's TLS configuration with a certificate from files.
func Server(f *Files[*tls.Certificate], protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.Get(), nil }}
}

// Authorities reads a file of trusted certificates. With system, the system's certificates are trusted too.
func Authorities(file string, system bool, log *slog.Logger) (*Files[*x509.CertPool], error) {
	return open(log, func() (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if system {
			if p, err := x509.SystemCertPool(); err == nil {
				pool = p
			}
		}
		text, err := files.ReadPEM(file)
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = fmt.Errorf("%s: found no PEM certificate", file)
		}
		return pool, err
	}, file)
}

// SelfSigned returns a server's TLS configuration with a certificate generated for this process. It is valid for
// localhost and the given hosts for a year. Clients cannot verify it.
func SelfSigned(hosts []string, protocols ...string) (*tls.Config, error) {
	der, key, err := selfSigned(hosts)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}

// SelfSignedPEM returns such a certificate and its key as PEM.
func SelfSignedPEM(hosts []string) (cert, key []byte, err error) {
	der, private, err := selfSigned(hosts)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

func selfSigned(hosts []string) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{Subject: pkix.Name{CommonName: "windtunnel"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if host != "" {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	if der, err = x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key); err != nil {
		return nil, nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return der, key, nil
}
