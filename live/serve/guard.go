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

// Local reports whether a request comes from this machine itself: its connection
// does, so does everybody that proxies say it came by, it names a loopback address,
// and no page of somebody else's has a browser here send it.
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
	return len(r.Header["Forwarded"]) == 0 // nobody here writes it
}

// Tokens are what a client may show as its bearer token; none allows nobody.
type Tokens [][sha256.Size]byte

// NewTokens are these tokens.
func NewTokens(list []string) Tokens {
	var out Tokens
	for _, token := range list {
		out = append(out, sha256.Sum256([]byte(token)))
	}
	return out
}

// maxTokenFile bounds a file of tokens, in bytes.
const maxTokenFile = 1 << 20

// ReadTokens reads a file of tokens, one a line.
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

// Allow tells whether an Authorization header shows one of the tokens. Digests
// are compared, so that the time it takes tells nothing of a token.
func (t Tokens) Allow(authorization string) bool {
	token, bearer := strings.CutPrefix(authorization, "Bearer ")
	got, ok := sha256.Sum256([]byte(token)), 0
	for i := range t {
		ok |= subtle.ConstantTimeCompare(got[:], t[i][:])
	}
	return ok == 1 && bearer
}
