package header

import "strings"

// secret are headers that may carry credentials, by name.
var secret = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true,
	"x-api-key": true, "api-key": true, "apikey": true, "x-goog-api-key": true, "x-goog-iam-authorization-token": true,
	"x-auth-token": true, "x-access-token": true, "x-amz-security-token": true, "x-forwarded-client-cert": true,
	"x-ms-token-aad-access-token": true, "x-vault-token": true, "x-csrf-token": true,
}

// Secret says whether a header may carry a credential, so that its value is to be
// written nowhere. Its name may be.
func Secret(name string) bool {
	if s, ok := usual[name]; ok {
		return secret[s]
	}
	name = strings.ToLower(name)
	if secret[name] {
		return true
	}
	for _, part := range [...]string{"api-key", "apikey", "api_key", "secret", "password", "passwd", "credential", "authorization", "private-key"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
