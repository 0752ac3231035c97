// Package workload makes the requests that a simulated client sends: when they
// arrive and what is in them. Everything comes from one seed and the request's
// number, so a live and a virtual run of one scenario send the same bytes.
package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Alphabet is what random prompts are made of.
type Alphabet uint8

// The alphabets.
const (
	ASCII        Alphabet = iota // letters, digits, spaces
	Unicode                      // any code point, one to four bytes each
	BoundaryLike                 // text that resembles a multipart delimiter
)

// Config is what the requests of one run have in common.
type Config struct {
	Seed      uint64
	Model     string
	Stream    bool
	MaxTokens int // 0 leaves it to the model server
	// Text is the prompt; empty draws one whose length comes from Length, in
	// bytes of UTF-8 or in characters.
	Text       string
	Length     func(d *machine.Draw) int
	Characters bool
	Alphabet   Alphabet
	// Prefixes are beginnings that prompts share: each prompt begins with one
	// of them, drawn evenly. None is none.
	Prefixes []string
	// Rate is arrivals per second (Poisson); 0 means that a request is sent
	// when an earlier one ends.
	Rate float64
}

// Request is one request of a workload.
type Request struct {
	// ID goes into x-request-id and names the request in every record.
	ID    string
	Index int
	Path  string
	Body  []byte
}

// ID is the id of the request with this number (from 0).
func (c *Config) ID(index int) string { return fmt.Sprintf("%s%06d", c.Prefix(), index+1) }

// Prefix is what the ids of the workload's requests begin with.
func (c *Config) Prefix() string { return fmt.Sprintf("req-%d-", c.Seed) }

// Request makes the request with this number (from 0).
func (c *Config) Request(index int) Request {
	prompt := c.Text
	if prompt == "" {
		d := machine.NewDraw(c.Seed, "client", "prompt", uint64(index))
		n := 64
		if c.Length != nil {
			n = c.Length(&d)
		}
		prompt = text(&d, c.Alphabet, n, c.Characters)
	}
	if n := len(c.Prefixes); n > 0 {
		d := machine.NewDraw(c.Seed, "client", "group", uint64(index))
		prompt = c.Prefixes[d.Intn(n)] + prompt
	}
	body := struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream,omitempty"`
		Max      int       `json:"max_tokens,omitempty"`
	}{c.Model, []message{{"user", prompt}}, c.Stream, c.MaxTokens}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		panic(err) // strings, a bool and an int always encode
	}
	return Request{ID: c.ID(index), Index: index, Path: "/v1/chat/completions", Body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Gap is the time from the arrival of the request before this one to its own,
// for an open loop.
func (c *Config) Gap(index int) machine.Time {
	if c.Rate <= 0 {
		return 0
	}
	d := machine.NewDraw(c.Seed, "client", "arrival", uint64(index))
	return machine.Time(-math.Log(1-d.Float64()) / c.Rate * 1e9)
}

const asciiLetters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ 0123456789 "

var boundaryPieces = []string{"\r\n--windtunnel-", "--", "\r\n", "\r\n--", "windtunnel-", "--\r\n", "Content-Disposition: form-data; name=\"metadata\"\r\n\r\n", "x"}

// text is n bytes, or n characters, of an alphabet. A length in bytes is met
// exactly except where the alphabet's characters have several bytes: then the
// rest is filled with 'x'.
func text(d *machine.Draw, a Alphabet, n int, characters bool) string {
	var b strings.Builder
	count := 0
	size := func() int {
		if characters {
			return count
		}
		return b.Len()
	}
	for size() < n {
		var piece string
		switch a {
		case Unicode:
			piece = string(rune(unicodePoint(d)))
		case BoundaryLike:
			piece = boundaryPieces[d.Intn(len(boundaryPieces))]
		default:
			piece = asciiLetters[d.Intn(len(asciiLetters)):][:1]
		}
		if !characters && b.Len()+len(piece) > n || characters && a == BoundaryLike && count+len(piece) > n {
			piece = "x"
		}
		b.WriteString(piece)
		count++
		if a == BoundaryLike {
			count += len(piece) - 1
		}
	}
	return b.String()
}

// unicodePoint draws from all planes that have characters, leaving out the
// surrogates, which UTF-8 cannot carry.
func unicodePoint(d *machine.Draw) int {
	for {
		ranges := [4][2]int{{0x20, 0x7e}, {0xa0, 0x7ff}, {0x800, 0xffff}, {0x10000, 0x10ffff}}
		r := ranges[d.Intn(4)]
		p := r[0] + d.Intn(r[1]-r[0]+1)
		if p < 0xd800 || p > 0xdfff {
			return p
		}
	}
}
