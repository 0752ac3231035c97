package modelserver

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// media is one image, sound or video of a prompt: what stands for it there, and
// where. Nothing is ever fetched or decoded; two are the same where their URLs
// or data are. The marker that stands in the prompt's text tells them apart, so
// prompts share cached prefixes only as far as they show the same.
type media struct {
	modality       string // image, audio or video
	hash           string // vLLM's mm_hash: of the URL or of the data
	offset, length int    // its placeholder, in tokens of the prompt
}

// seenMedia are the last media that a server has been shown: vLLM's cache of
// what its multi-modal processor made of them.
type seenMedia struct {
	mu            sync.Mutex
	known         *simplelru.LRU[string, struct{}]
	queries, hits uint64
}

// seenLength is how many are remembered: vLLM's 4 GiB hold some thousand images.
const seenLength = 4096

func (x *seenMedia) show(all []media) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil {
		x.known, _ = simplelru.NewLRU[string, struct{}](seenLength, nil) // fails for lengths below 1 alone
	}
	for i := range all {
		x.queries++
		if _, ok := x.known.Get(all[i].hash); ok {
			x.hits++
		}
		x.known.Add(all[i].hash, struct{}{})
	}
}

func (x *seenMedia) counts() (queries, hits float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return float64(x.queries), float64(x.hits)
}

// modalities are vLLM's names of the kinds of parts.
var modalities = map[string]string{
	"image_url": "image", "input_image": "image", "image": "image", "audio_url": "audio", "input_audio": "audio", "video_url": "video",
}

const markerHash = 12 // digits of the hash in the marker

func mediaHash(p *openai.Part) string {
	sum := sha256.Sum256([]byte(p.URL))
	return hex.EncodeToString(sum[:])
}

// marker is the text that stands for a part in the prompt.
func marker(p *openai.Part) string {
	return "<|" + p.Type + ":" + mediaHash(p)[:markerHash] + "|>"
}

// mediaOf finds the media of a chat in the prompt that it became.
func (s *Server) mediaOf(messages []openai.Message, text string) []media {
	var out []media
	at := 0
	for i := range messages {
		for k := range messages[i].Content.Media {
			p := &messages[i].Content.Media[k]
			mark := marker(p)
			found := strings.Index(text[at:], mark)
			if found < 0 {
				continue // a template that leaves the role out
			}
			from := at + found
			at = from + len(mark)
			m := media{modality: modalities[p.Type], hash: mediaHash(p), offset: tokens.Count(s.tokenizer, text[:from])}
			m.length = max(1, tokens.Count(s.tokenizer, text[:at])-m.offset)
			out = append(out, m)
		}
	}
	return out
}

// appendFeatures is what the render endpoints tell of a prompt's media.
func appendFeatures(b []byte, all []media) []byte {
	if len(all) == 0 {
		return append(b, "null"...)
	}
	var kinds []string
	for _, m := range all {
		if !slices.Contains(kinds, m.modality) {
			kinds = append(kinds, m.modality)
		}
	}
	slices.Sort(kinds)
	each := func(b []byte, one func(b []byte, m *media) []byte) []byte {
		b = append(b, '{')
		for i, kind := range kinds {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(openai.AppendString(b, kind), ":["...)
			first := true
			for k := range all {
				if all[k].modality != kind {
					continue
				}
				if !first {
					b = append(b, ',')
				}
				first = false
				b = one(b, &all[k])
			}
			b = append(b, ']')
		}
		return append(b, '}')
	}
	b = append(b, `{"mm_hashes":`...)
	b = each(b, func(b []byte, m *media) []byte { return openai.AppendString(b, m.hash) })
	b = append(b, `,"mm_placeholders":`...)
	b = each(b, func(b []byte, m *media) []byte {
		b = append(b, `{"offset":`...)
		b = strconv.AppendInt(b, int64(m.offset), 10)
		b = field(b, "length", m.length)
		return append(b, '}')
	})
	return append(b, `,"kwargs_data":null}`...)
}

// encodedBytes is the size of one encoded image, as llm-d-inference-sim tells
// it: 576 visual tokens of 2,048 values in 16 bits.
const encodedBytes = 576 * 2048 * 2

// appendEncoded is ec_transfer_params as an encoder server tells it: for each
// of the hashes, where its encoding could be had. Nobody asks for it there.
func (s *Server) appendEncoded(b []byte, hashes []string) []byte {
	host, port, err := net.SplitHostPort(s.endpoint)
	if s.opts.SideChannel != "" && err == nil {
		if _, p, err := net.SplitHostPort(s.opts.SideChannel); err == nil {
			port = p
		}
	}
	b = append(b, '{')
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(openai.AppendString(b, h), `:{"peer_host":`...)
		b = append(openai.AppendString(b, host), `,"peer_port":`...)
		n, _ := strconv.Atoi(port) // our own address
		b = strconv.AppendInt(b, int64(n), 10)
		b = field(b, "size_bytes", encodedBytes)
		b = append(b, `,"nixl_agent_metadata_b64":"c2ltdWxhdGVk"}`...)
	}
	return append(b, '}')
}

// encoded is the field of a response that tells of the media which were
// encoded for other servers; nil where there are none.
func (s *Server) encoded(r *request) []byte {
	if len(r.encodes) == 0 {
		return nil
	}
	return s.appendEncoded([]byte(`,"ec_transfer_params":`), r.encodes)
}

// query answers GET /query as Mooncake's bootstrap server does: which engine
// serves which data-parallel rank.
func (s *Server) query(w http.ResponseWriter, _ *http.Request) {
	b := openai.AppendString([]byte(`{"0":{"engine_id":`), s.engineID)
	writeWhole(w, http.StatusOK, jsonType, append(b, "}}"...))
}

// sendImageHeader asks for a picture in the answer, as llm-d-inference-sim has
// it for --omni.
const sendImageHeader = "X-Send-Image"

// onePixel is the picture that an omni server paints: one transparent pixel.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// paints is whether an answer has a picture beside its text.
func (s *Server) paints(r *http.Request, id string) bool {
	if !s.opts.Omni {
		return false
	}
	if v, err := strconv.ParseBool(r.Header.Get(sendImageHeader)); err == nil && v {
		return true
	}
	percent := float64(s.imagePercent.Load())
	if percent == 0 {
		return false
	}
	d := machine.DrawFor(s.seed, "server", "image", id)
	return d.Float64()*100 < percent
}
