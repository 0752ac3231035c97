package tokens

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// SentencePiece tokenizers (Llama 2, Mistral) in the form of tokenizer.json are BPE over characters instead of bytes. A
// space is written ▁, and text gets one at its beginning. A character without a token becomes the tokens of its bytes,
// <0x00> to <0xFF>.

const lowerBlock = "▁"

// metaspace says where encoding adds a ▁ before text.
type metaspace uint8

const (
	metaspaceNever  metaspace = iota
	metaspaceFirst            // before a text
	metaspaceAlways           // also after each added token
)

// readCharacters reads the vocabulary of a SentencePiece tokenizer.
func (t *BPE) readCharacters(f *tokenizerFile) error {
	for b := range 256 {
		id, ok := f.Model.Vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			return fmt.Errorf("model.vocab: no token <0x%02X>, though model.byte_fallback is true", b)
		}
		t.bytes[b] = id
	}
	for spelled, id := range f.Model.Vocab {
		t.vocabulary[spelled] = id
		t.text[id] = strings.ReplaceAll(spelled, lowerBlock, " ")
	}
	for b, id := range t.bytes {
		t.text[id] = string([]byte{byte(b)})
	}
	return nil
}

// characters appends the tokens of single characters, with which BPE begins.
func (t *BPE) characters(dst []uint32, piece string) []uint32 {
	for len(piece) > 0 {
		_, size := utf8.DecodeRuneInString(piece)
		if id, ok := t.vocabulary[piece[:size]]; ok {
			dst = append(dst, id)
		} else {
			for i := range size {
				dst = append(dst, t.bytes[piece[i]])
			}
		}
		piece = piece[size:]
	}
	return dst
}

// readMetaspace reads the pre-tokenizer of newer conversions.
func (t *BPE) readMetaspace(c *component) error {
	if c.Replacement != lowerBlock {
		return fmt.Errorf("pre_tokenizer: Metaspace with replacement %q; expected %q", c.Replacement, lowerBlock)
	}
	switch scheme := c.PrependScheme; {
	case scheme == "never" || scheme == "" && !c.AddPrefixSpace:
		t.metaspace = metaspaceNever
	case scheme == "first":
		t.metaspace = metaspaceFirst
	case scheme == "always" || scheme == "":
		t.metaspace = metaspaceAlways
	default:
		return fmt.Errorf("pre_tokenizer: Metaspace with prepend_scheme %q; expected never, first or always", scheme)
	}
	t.normalize = append(t.normalize, func(s string) string { return strings.ReplaceAll(s, " ", lowerBlock) })
	t.strip = t.metaspace != metaspaceNever
	if c.Split == nil || *c.Split {
		t.splitters = append(t.splitters, func(s string) int {
			if next := strings.Index(s[min(len(s), len(lowerBlock)):], lowerBlock); strings.HasPrefix(s, lowerBlock) &&
				next >= 0 {
				return len(lowerBlock) + next
			}
			if next := strings.Index(s, lowerBlock); next > 0 {
				return next
			}
			return len(s)
		})
	}
	return nil
}

// readReplace reads the two normalizers of older conversions.
func (t *BPE) readReplace(c *component) error {
	switch {
	case c.Type == "Prepend" && c.Prepend == lowerBlock:
		t.strip = true
		t.normalize = append(t.normalize, func(s string) string { return lowerBlock + s })
	case c.Type == "Replace" && c.Pattern.String != "":
		from, to := c.Pattern.String, c.Content
		if len(to) > 4*len(from) {
			return errors.New("normalizer: Replace makes text more than four times as long")
		}
		t.normalize = append(t.normalize, func(s string) string { return strings.ReplaceAll(s, from, to) })
	default:
		return fmt.Errorf("normalizer: %s with pattern %+v and prepend %q is not supported", c.Type, c.Pattern,
			c.Prepend)
	}
	return nil
}
