package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/files"
)

var crossOrigin http.CrossOriginProtection

// Local reports whether a request comes from this machine. Its connection and every hop that proxies recorded must be
// from loopback addresses, its Host must be a loopback name or address, and it must not come from a page of another
// origin in a local browser.
func Local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !header.Loopback(r.Host) || crossOrigin.Check(r) != nil {
		return false
	}
	for _, list := range r.Header["X-Forwarded-For"] {
		for hop := range strings.SplitSeq(list, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil || !a.Unmap().IsLoopback() {
				return false
			}
		}
	}
	return len(r.Header["Forwarded"]) == 0 // no proxy on this machine writes it
}

// Tokens are the bearer tokens that grant access. Without tokens, nobody has access.
type Tokens [][sha256.Size]byte

// NewTokens returns Tokens that accept each token of the list.
func NewTokens(list []string) Tokens {
	var out Tokens
	for _, token := range list {
		out = append(out, sha256.Sum256([]byte(token)))
	}
	return out
}

// maxTokenFile bounds a token file, in bytes.
const maxTokenFile = 1 << 20

// ReadTokens reads a file with one token per line.
func ReadTokens(path string) (Tokens, error) {
	text, err := files.Read(path, maxTokenFile)
	if err != nil {
		return nil, err
	}
	list := strings.Fields(string(text))
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errors.New("there is no token in it: expected one a line"))
	}
	return NewTokens(list), nil
}

// Allow reports whether an Authorization header has one of the tokens. It compares digests, so its duration reveals
// nothing about a token.
func (t Tokens) Allow(authorization string) bool {
	token, bearer := strings.CutPrefix(authorization, "Bearer ")
	got, ok := sha256.Sum256([]byte(token)), 0
	for i := range t {
		ok |= subtle.ConstantTimeCompare(got[:], t[i][:])
	}
	return ok == 1 && bearer
}
