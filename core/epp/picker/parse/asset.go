package parse

import (
	"encoding/base64"
	"image"
	_ "image/gif" // so that sizes of pictures can be read
	_ "image/jpeg"
	_ "image/png"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Asset is an image, sound or film of a prompt.
type Asset struct {
	Hash   uint64 // of its content or address
	Tokens int    // estimated

	kind          assetKind
	width, height int // of a picture that came with the request; else 0
	at            int // where it begins in the prompt's text
}

type assetKind uint8

const (
	fixed assetKind = iota // its tokens are known
	picture
	film
)

// Estimate is token-producer's parameter estimate: how many tokens pictures and films count for. A zero field has its
// default.
type Estimate struct {
	Image struct {
		Mode       string     `json:"mode" oneof:",dynamic,static"`
		Resolution resolution `json:"defaultResolution"` // of a picture of unknown size
		Static     struct {
			Tokens int `json:"staticToken"` // per picture
		} `json:"static"`
		Dynamic factor `json:"dynamic"`
	} `json:"image"`
	Video struct {
		Resolution resolution `json:"defaultResolution"`
		Seconds    float64    `json:"defaultDuration"`
		PerFrame   struct {
			Mode   string `json:"mode" oneof:",dynamic,static"`
			Static struct {
				Tokens int `json:"numTokensPerFrame"`
			} `json:"static"`
			Dynamic factor `json:"dynamic"`
		} `json:"tokensPerFrame"`
		Frames struct {
			Mode    string `json:"mode" oneof:",sampled,strided"` // FPS frames a second, or each Stride-th of the source
			Min     int    `json:"minFrames"`
			Max     int    `json:"maxFrames"` // 0 is no limit
			Sampled struct {
				FPS      float64 `json:"sampleFPS"`         // 2
				Temporal int     `json:"temporalPatchSize"` // frames that make one
			} `json:"sampled"`
			Strided struct {
				Stride    int     `json:"frameStride"`
				SourceFPS float64 `json:"defaultSourceFPS"` // 24
			} `json:"strided"`
		} `json:"frames"`
		MaxTokens int `json:"maxVideoTokens"` // 0 is no limit
	} `json:"video"`
}

// resolution is 640 by 360 where it is 0.
type resolution struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// factor is how many pixels are a token; 1,024 where it is 0.
type factor struct {
	Pixels int `json:"factor"`
}

// Film holds a client's headers about its film; 0 is unknown.
type Film struct {
	Width, Height int
	Seconds, FPS  float64
}

// maxAssetTokens bounds what one asset may claim to be worth, and maxAssetsTokens
// what all of a request may: their sizes are the client's word.
const (
	maxAssetTokens  = 1 << 18
	maxAssetsTokens = MaxBodyBytes / bytesPerToken
)

func orElse[T int | float64](v, usual T) T {
	if v > 0 {
		return v
	}
	return usual
}

// tokens returns the number of tokens that a picture or frame counts for.
func (f factor) tokens(width, height int) int {
	width, height = min(width, 1<<20), min(height, 1<<20)
	return min(max(1, width*height/orElse(f.Pixels, 1024)), maxAssetTokens)
}

func (e *Estimate) picture(width, height int) int {
	p := &e.Image
	if p.Mode == "static" {
		return min(max(1, p.Static.Tokens), maxAssetTokens)
	}
	if width <= 0 || height <= 0 {
		width, height = orElse(p.Resolution.Width, 640), orElse(p.Resolution.Height, 360)
	}
	return p.Dynamic.tokens(width, height)
}

func (e *Estimate) film(f Film) int {
	v := &e.Video
	n := min(e.frames(f), maxAssetTokens)
	each := max(1, v.PerFrame.Static.Tokens)
	if v.PerFrame.Mode != "static" {
		size := v.Resolution
		if f.Width > 0 && f.Height > 0 {
			size = resolution{f.Width, f.Height}
		}
		each = v.PerFrame.Dynamic.tokens(orElse(size.Width, 640), orElse(size.Height, 360))
	}
	n = min(n*min(each, maxAssetTokens), maxAssetTokens)
	if v.MaxTokens > 0 {
		n = min(n, v.MaxTokens)
	}
	return max(1, n)
}

func (e *Estimate) frames(f Film) int {
	v := &e.Video.Frames
	strided := v.Mode == "strided"
	seconds := min(orElse(f.Seconds, orElse(e.Video.Seconds, 10)), 1e6)
	var n int
	if strided {
		n = int(seconds*min(orElse(f.FPS, orElse(v.Strided.SourceFPS, 24)), 1e6)) / max(1, v.Strided.Stride)
	} else {
		n = int(seconds * min(orElse(v.Sampled.FPS, 2), 1e6))
	}
	n = max(n, v.Min)
	if v.Max > 0 {
		n = min(n, v.Max)
	}
	if !strided && v.Sampled.Temporal > 1 {
		n /= v.Sampled.Temporal
	}
	return n
}

var usualEstimate Estimate

// picture, film and sound let an asset stand in the estimated prompt.
func (b *Body) picture(out []byte, content, base64 string) []byte {
	w, h := pictureSize(base64)
	return b.asset(out, content, Asset{Tokens: usualEstimate.picture(w, h), kind: picture, width: w, height: h})
}

func (b *Body) film(out []byte, content string) []byte {
	return b.asset(out, content, Asset{Tokens: usualEstimate.film(Film{}), kind: film})
}

func (b *Body) sound(out []byte, content string) []byte {
	return b.asset(out, content,
		Asset{Tokens: min(max(1, (len(content)+bytesPerToken-1)/bytesPerToken), maxAssetsTokens)})
}

// asset stands for an image, sound or film in the estimated prompt: its
// content's hash, repeated once per token that it is worth, on a token's
// boundary.
func (b *Body) asset(out []byte, content string, a Asset) []byte {
	out = pad(out)
	a.Hash, a.at = xxhash.Sum64String(content), len(out)
	b.Multimodal++
	a.Tokens = min(a.Tokens, max(0, maxAssetsTokens-b.assetTokens))
	b.assetTokens += a.Tokens
	b.Assets = append(b.Assets, a)
	return a.stand(out)
}

func (a *Asset) stand(out []byte) []byte {
	for range a.Tokens {
		out = append(out, byte(a.Hash), byte(a.Hash>>8), byte(a.Hash>>16), byte(a.Hash>>24))
	}
	return out
}

// Reestimate counts the pictures and films of a prompt by another estimate than the default, or by a client's headers
// about its film.
func (b *Body) Reestimate(e *Estimate, f Film) {
	if b.Kind != Chat && b.Kind != Messages || len(b.Assets) == 0 || len(b.Prompts) != 1 {
		return
	}
	was := b.Prompts[0].Text()
	out := make([]byte, 0, len(was))
	end := 0
	b.assetTokens = 0
	for i := range b.Assets {
		a := &b.Assets[i]
		out = append(out, was[end:a.at]...)
		end = a.at + a.Tokens*bytesPerToken
		switch a.kind {
		case picture:
			a.Tokens = e.picture(a.width, a.height)
		case film:
			a.Tokens = e.film(f)
		}
		a.Tokens = min(a.Tokens, max(0, maxAssetsTokens-b.assetTokens))
		b.assetTokens += a.Tokens
		a.at = len(out)
		out = a.stand(out)
	}
	b.Prompts[0] = TextPrompt(append(out, was[end:]...))
}

// pictureURL returns the base64 text of a data URL of a picture, "" of another URL.
func pictureURL(url string) string {
	if _, data, ok := strings.Cut(url, "base64,"); ok && strings.HasPrefix(url, "data:image/") {
		return data
	}
	return ""
}

// pictureSize reads a picture's width and height from its first bytes.
func pictureSize(text string) (width, height int) {
	if text == "" {
		return 0, 0
	}
	c, _, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil || c.Width <= 0 || c.Height <= 0 {
		return 0, 0
	}
	return c.Width, c.Height
}
