package header

import (
	"net/url"
	"slices"
	"strings"
)

// secret lists headers that may carry credentials, by name.
var secret = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true,
	"x-goog-iam-authorization-token": true, "x-auth-token": true, "x-access-token": true, "x-amz-security-token": true,
	"x-forwarded-client-cert": true, "x-ms-token-aad-access-token": true, "x-vault-token": true, "x-csrf-token": true,
}

// parts lists the parts by which a name shows that its value is a credential.
var parts = []string{"api-key", "apikey", "api_key", "secret", "password", "passwd", "credential", "authorization",
	"private-key",
	"access-key", "subscription-key", "api-token", "access-token", "access_token", "auth-token", "id-token",
	"private-token"}

// Secret reports whether a header may carry a credential. Such a header's value must not be written anywhere; its name
// may be.
func Secret(name string) bool {
	if s, ok := usual[name]; ok {
		return secret[s]
	}
	name = strings.ToLower(name)
	return secret[name] || slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// asked lists the fields of a query that are credentials by their whole names.
var asked = []string{"key", "token", "sig", "signature", "x-amz-signature"}

// Open returns a value, such as a path or an address, without the credentials in its query, so that it may be logged.
func Open(value string) string {
	path, query, found := strings.Cut(value, "?")
	if !found {
		return value
	}
	fields := strings.Split(query, "&")
	for i, field := range fields {
		raw, _, has := strings.Cut(field, "=")
		name, err := url.QueryUnescape(raw)
		if has && (err != nil || Secret(name) || slices.Contains(asked, strings.ToLower(name))) {
			fields[i] = raw + "="
		}
	}
	return path + "?" + strings.Join(fields, "&")
}
