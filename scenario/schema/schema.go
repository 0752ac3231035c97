// Package schema holds the JSON Schema of scenario files, for editors. Its tests make the schema from the types of
// package scenario: their fields, limits, defaults and comments.
package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

// The readable copy is docs/scenario.schema.json. go test ./scenario/schema -update writes both.
//
//go:embed scenario.schema.json.gz
var packed []byte

// JSON returns the JSON Schema of a scenario file. An error means a damaged program.
func JSON() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
