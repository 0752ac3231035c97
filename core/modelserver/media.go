package modelserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Media is one image, sound or video of a prompt, with the position and the length of its placeholder. The server never
// fetches or decodes media: two are equal if their URLs or data are. The marker in the prompt's text depends on the
// hash, so prompts share cached prefixes only as far as they contain the same media.
type Media struct {
	Modality       string // image, audio or video
	Hash           string // vLLM's mm_hash, of the URL or of the data
	Offset, Length int    // of the placeholder, in tokens of the prompt
}

// modalities maps the types of content parts to vLLM's names.
var modalities = map[string]string{
	"image_url": "image", "input_image": "image", "image": "image", "audio_url": "audio", "input_audio": "audio",
	"video_url": "video",
}

const markerHash = 12 // digits of the hash in the marker

func mediaHash(p *openai.Part) string {
	sum := sha256.Sum256([]byte(p.URL))
	return hex.EncodeToString(sum[:])
}

// marker returns the placeholder of a part in the prompt's text.
func marker(p *openai.Part) string {
	return "<|" + p.Type + ":" + mediaHash(p)[:markerHash] + "|>"
}

// mediaOf finds the media of a chat in the rendered prompt.
func (r *Reader) mediaOf(messages []openai.Message, text string) []Media {
	var out []Media
	at := 0
	for i := range messages {
		for k := range messages[i].Content.Media {
			p := &messages[i].Content.Media[k]
			mark := marker(p)
			found := strings.Index(text[at:], mark)
			if found < 0 {
				continue // the template leaves the role out
			}
			from := at + found
			at = from + len(mark)
			m := Media{Modality: modalities[p.Type], Hash: mediaHash(p), Offset: tokens.Count(r.Tokenizer, text[:from])}
			m.Length = max(1, tokens.Count(r.Tokenizer, text[:at])-m.Offset)
			out = append(out, m)
		}
	}
	return out
}

// AppendFeatures appends the description of a prompt's media that the render endpoints return.
func AppendFeatures(b []byte, all []Media) []byte {
	if len(all) == 0 {
		return append(b, "null"...)
	}
	type place struct {
		Offset int `json:"offset"`
		Length int `json:"length"`
	}
	features := struct {
		Hashes map[string][]string `json:"mm_hashes"`
		Places map[string][]place  `json:"mm_placeholders"`
		Kwargs *struct{}           `json:"kwargs_data"`
	}{Hashes: map[string][]string{}, Places: map[string][]place{}}
	for _, m := range all {
		features.Hashes[m.Modality] = append(features.Hashes[m.Modality], m.Hash)
		features.Places[m.Modality] = append(features.Places[m.Modality], place{m.Offset, m.Length})
	}
	text, err := json.Marshal(&features)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return append(b, text...)
}

// encodedBytes is the size of one encoded image as llm-d-inference-sim reports it: 576 visual tokens of 2,048 values in
// 16 bits.
const encodedBytes = 576 * 2048 * 2

// appendEncoded appends ec_transfer_params as an encoder server returns it: the address of the encoding of each hash.
// No server fetches from that address.
func (r *Reader) appendEncoded(b []byte, hashes []string) []byte {
	host, port := r.State.EncodingsAt()
	b = append(b, '{')
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = openai.Fill(b, `$:{"peer_host":$,"peer_port":$,"size_bytes":$,"nixl_agent_metadata_b64":"c2ltdWxhdGVk"}`, h,
			host,
			port, encodedBytes)
	}
	return append(b, '}')
}

// encoded returns the field of a response that describes the media encoded for other servers; nil if there are none.
func (r *Reader) encoded(q *Request) []byte {
	if len(q.encodes) == 0 {
		return nil
	}
	return r.appendEncoded([]byte(`,"ec_transfer_params":`), q.encodes)
}

// onePixel is the picture that an omni server returns: one transparent pixel.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk" +
	"+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// paints reports whether an answer has a picture beside its text.
func (r *Reader) paints(h *Head, id string) bool {
	if !r.Omni || h.Image {
		return r.Omni
	}
	percent := float64(r.State.ImagePercent())
	if percent == 0 {
		return false
	}
	d := machine.DrawFor(r.Seed, "server", "image", id)
	return d.Float64()*100 < percent
}
