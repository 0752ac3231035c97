package tlsfiles_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

// made returns a new certificate and its key, as PEM.
func made(t *testing.T, host string) (cert, key []byte, leaf *x509.Certificate) {
	t.Helper()
	c, err := tlsfiles.SelfSigned([]string{host})
	if err != nil {
		t.Fatal(err)
	}
	own := c.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if leaf, err = x509.ParseCertificate(own.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), leaf
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pair is replaced file by file. While the two files do not match, the old pair is served, and the log says so
// once.
func TestPair(t *testing.T) {
	dir := t.TempDir()
	if _, err := tlsfiles.Dir(dir, nil); err == nil || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("no files: %v", err)
	}
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	crtA, keyA, a := made(t, "a.test")
	crtB, keyB, b := made(t, "b.test.longer")
	write(t, crt, crtA)
	write(t, key, keyB)
	if _, err := tlsfiles.Dir(dir, nil); err == nil {
		t.Error("a key of another certificate is taken")
	}
	write(t, key, keyA)
	var log bytes.Buffer
	f, err := tlsfiles.Dir(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := tlsfiles.Server(f, "h2")
	serves := func(want *x509.Certificate, when string) {
		t.Helper()
		got, err := c.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || !bytes.Equal(got.Certificate[0], want.Raw) {
			t.Errorf("%s: another certificate is served (%v), expected %v", when, err, want.DNSNames)
		}
	}
	serves(a, "at first")
	write(t, crt, crtB)
	serves(a, "with half of a new pair")
	serves(a, "the second time")
	if n := strings.Count(log.String(), "the old ones stay in use"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	write(t, key, keyB)
	serves(b, "with the new pair")
	os.Remove(crt)
	serves(b, "without files")
	write(t, crt, crtA)
	write(t, key, keyA)
	serves(a, "with the first pair again")
}

// Authorities change with their file.
func TestAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, []byte("nothing"))
	if _, err := tlsfiles.Authorities(file, false, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file without a certificate: %v", err)
	}
	crtA, _, a := made(t, "a.test")
	crtB, _, b := made(t, "b.test.longer")
	write(t, file, crtA)
	for _, system := range []bool{false, true} {
		write(t, file, crtA)
		f, err := tlsfiles.Authorities(file, system, nil)
		if err != nil {
			t.Fatal(err)
		}
		trusts := func(c *x509.Certificate) bool {
			_, err := c.Verify(x509.VerifyOptions{Roots: f.Get(), DNSName: c.DNSNames[1]})
			return err == nil
		}
		if !trusts(a) || trusts(b) {
			t.Error("trusts another than the file's")
		}
		write(t, file, append(crtB, crtA...))
		if !trusts(a) || !trusts(b) {
			t.Error("does not trust what the file has now")
		}
	}
}

// A self-signed certificate is valid for the requested host and for this machine.
func TestSelfSigned(t *testing.T) {
	_, _, c := made(t, "pod-0")
	for _, host := range []string{"pod-0", "localhost", "127.0.0.1", "::1"} {
		if err := c.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if _, _, other := made(t, "10.0.0.1"); other.VerifyHostname("10.0.0.1") != nil ||
		other.SerialNumber.Cmp(c.SerialNumber) == 0 {
		t.Error("not for an address, or with another's serial number")
	}
}
