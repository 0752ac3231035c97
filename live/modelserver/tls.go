package modelserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// ReloadingTLS serves a certificate from files and takes new ones up when the
// files change. A change that cannot be read leaves the old certificate.
func ReloadingTLS(certFile, keyFile string) (*tls.Config, error) {
	c := &reloading{certFile: certFile, keyFile: keyFile}
	if err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}, nil
}

type reloading struct {
	certFile, keyFile string
	mu                sync.Mutex
	cert              *tls.Certificate
	changed           time.Time
}

func (c *reloading) load() error {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.certFile); err == nil {
		c.changed = info.ModTime()
	}
	c.cert = &cert
	return nil
}

func (c *reloading) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if info, err := os.Stat(c.certFile); err == nil && !info.ModTime().Equal(c.changed) {
		_ = c.load() // half-written files are read again at the next handshake
	}
	return c.cert, nil
}

// SelfSignedTLS makes a certificate for a host that lives as long as the
// process.
func SelfSignedTLS(host string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "windtunnel"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"},
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = append(t.IPAddresses, ip)
	} else {
		t.DNSNames = append(t.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, &t, &t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}, nil
}
