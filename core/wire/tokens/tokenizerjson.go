package tokens

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of a tokenizer.json.
const (
	MaxFileBytes  = 128 << 20
	maxVocabulary = 1 << 21
	maxMerges     = 1 << 22
	maxAdded      = 1 << 16
	maxTokenID    = 1 << 24
)

type tokenizerFile struct {
	Model struct {
		Type         string            `json:"type"`
		Vocab        map[string]uint32 `json:"vocab"`
		Merges       []mergeText       `json:"merges"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
	} `json:"model"`
	Added []struct {
		ID         uint32 `json:"id"`
		Content    string `json:"content"`
		Special    bool   `json:"special"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
	} `json:"added_tokens"`
	Normalizer   *component `json:"normalizer"`
	PreTokenizer *component `json:"pre_tokenizer"`
}

// component is a normalizer or a pre-tokenizer. It has the fields of all types.
type component struct {
	Type           string      `json:"type"`
	AddPrefixSpace bool        `json:"add_prefix_space"`
	UseRegex       *bool       `json:"use_regex"`
	Pattern        pattern     `json:"pattern"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	Normalizers    []component `json:"normalizers"`
	PreTokenizers  []component `json:"pretokenizers"`
	Content        string      `json:"content"`
	Prepend        string      `json:"prepend"`
	Replacement    string      `json:"replacement"`
	PrependScheme  string      `json:"prepend_scheme"`
	Split          *bool       `json:"split"`
}

type pattern struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

// mergeText is "a b" in older files and ["a", "b"] in newer ones.
type mergeText [2]string

// UnmarshalJSON accepts both forms.
func (m *mergeText) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		a, b, ok := strings.Cut(text, " ")
		if !ok {
			return fmt.Errorf("merge %q has no space between its two parts", text)
		}
		*m = mergeText{a, b}
		return nil
	}
	var two []string
	if err := json.Unmarshal(data, &two); err != nil || len(two) != 2 {
		return errors.New(`a merge must be "a b" or ["a", "b"]`)
	}
	*m = mergeText{two[0], two[1]}
	return nil
}

// ParseTokenizerJSON parses a Hugging Face tokenizer.json. It supports byte-level BPE with the pre-tokenizers of GPT-2,
// Llama 3, Qwen and gpt-oss, or with any regular expression without look-ahead. It also supports SentencePiece BPE with
// byte fallback (Llama 2, Mistral). For other files, the error names the unsupported field.
func ParseTokenizerJSON(data []byte) (*BPE, error) {
	t, err := parseTokenizer(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func parseTokenizer(data []byte) (*BPE, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%d bytes; at most %d are read", len(data), MaxFileBytes)
	}
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	switch m := &f.Model; {
	case m.Type != "BPE" && (m.Type != "" || len(m.Merges) == 0):
		return nil, fmt.Errorf("model.type is %q; expected BPE", m.Type)
	case len(m.Vocab) > maxVocabulary || len(m.Merges) > maxMerges || len(f.Added) > maxAdded:
		return nil, fmt.Errorf("%d tokens, %d merges, %d added tokens; at most %d, %d and %d are read", len(m.Vocab),
			len(m.Merges), len(f.Added), maxVocabulary, maxMerges, maxAdded)
	}
	t := &BPE{merges: make(map[pair]merge, len(f.Model.Merges)),
		vocabulary: make(map[string]uint32, len(f.Model.Vocab)), text: make(map[uint32]string, len(f.Model.Vocab)),
		special: map[uint32]bool{}, whole: f.Model.IgnoreMerges}
	t.byCharacter = f.Model.ByteFallback
	if err := t.readVocabulary(&f); err != nil {
		return nil, err
	}
	if err := t.readNormalizer(f.Normalizer, 0); err != nil {
		return nil, err
	}
	byteLevel, err := t.readPreTokenizer(f.PreTokenizer, 0)
	if err != nil {
		return nil, err
	}
	if byteLevel == t.byCharacter {
		return nil, fmt.Errorf("pre_tokenizer has ByteLevel: %v, model.byte_fallback: %v; expected one of the two "+
			"(byte-level or SentencePiece BPE)", byteLevel, t.byCharacter)
	}
	if err := t.readAdded(&f); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *BPE) readVocabulary(f *tokenizerFile) error {
	letters := make([]string, 0, len(f.Model.Vocab))
	for spelled := range f.Model.Vocab {
		letters = append(letters, spelled)
	}
	sort.Strings(letters) // so that the same file always gives the same error
	taken := make(map[uint32]string, len(letters))
	for _, spelled := range letters {
		id := f.Model.Vocab[spelled]
		if id > maxTokenID {
			return fmt.Errorf("model.vocab: %q has id %d; at most %d are read", spelled, id, maxTokenID)
		}
		if other, twice := taken[id]; twice {
			return fmt.Errorf("model.vocab: %q has the id %d of %q", spelled, id, other)
		}
		taken[id] = spelled
	}
	read := t.readBytes
	if t.byCharacter {
		read = t.readCharacters
	}
	if err := read(f); err != nil {
		return err
	}
	for rank, m := range f.Model.Merges {
		a, okA := f.Model.Vocab[m[0]]
		b, okB := f.Model.Vocab[m[1]]
		to, okTo := f.Model.Vocab[m[0]+m[1]]
		if !okA || !okB || !okTo {
			return fmt.Errorf("model.merges[%d]: %q and %q or what they make is not in model.vocab", rank, m[0], m[1])
		}
		if _, twice := t.merges[pair{a, b}]; !twice {
			t.merges[pair{a, b}] = merge{int32(rank), to}
		}
	}
	return nil
}

// readBytes reads the vocabulary of a byte-level tokenizer.
func (t *BPE) readBytes(f *tokenizerFile) error {
	for spelled, id := range f.Model.Vocab {
		text, ok := unspell(spelled)
		if !ok {
			text = spelled // an added token that is also listed here
		}
		t.text[id] = text
		if ok {
			t.vocabulary[text] = id
		}
	}
	for b := range 256 {
		id, ok := t.vocabulary[string([]byte{byte(b)})]
		if !ok {
			return fmt.Errorf("model.vocab: no token for the byte 0x%02x; byte-level BPE has one for each", b)
		}
		t.bytes[b] = id
	}
	return nil
}

const maxDepth = 8

// readPreTokenizer appends the splitters and reports whether the pre-tokenizer uses ByteLevel.
func (t *BPE) readPreTokenizer(c *component, depth int) (bool, error) {
	if c == nil {
		return false, nil
	}
	switch c.Type {
	case "Sequence":
		if depth >= maxDepth {
			return false, fmt.Errorf("pre_tokenizer: more than %d levels of Sequence", maxDepth)
		}
		any := false
		for i := range c.PreTokenizers {
			ok, err := t.readPreTokenizer(&c.PreTokenizers[i], depth+1)
			if err != nil {
				return false, err
			}
			any = any || ok
		}
		return any, nil
	case "ByteLevel":
		t.prefix = t.prefix || c.AddPrefixSpace
		if c.UseRegex == nil || *c.UseRegex {
			t.splitters = append(t.splitters, splitGPT2)
		}
		return true, nil
	case "Metaspace":
		return false, t.readMetaspace(c)
	case "Split":
		s, err := newSplitter(c)
		t.splitters = append(t.splitters, s)
		return false, err
	}
	return false, fmt.Errorf(
		"pre_tokenizer: type %q is not supported; expected ByteLevel, Split, Metaspace or Sequence", c.Type)
}

func newSplitter(c *component) (splitter, error) {
	expression := c.Pattern.Regex
	expression = cmp.Or(expression, regexp.QuoteMeta(c.Pattern.String))
	if c.Behavior != "Isolated" || c.Invert || expression == "" {
		return nil, fmt.Errorf("pre_tokenizer: Split with behavior %q, invert %v and pattern %q; expected a pattern, "+
			"Isolated and not inverted", c.Behavior, c.Invert, expression)
	}
	if s, ok := splitters[expression]; ok {
		return s, nil
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: pattern %q is not one of the known ones (GPT-2, Llama 3, Qwen, "+
			"gpt-oss), and not one that Go can read: %w", expression, err)
	}
	return func(text string) int {
		switch loc := re.FindStringIndex(text); {
		case loc == nil:
			return len(text)
		case loc[0] > 0:
			return loc[0] // the text before a match is a piece, too
		case loc[1] > 0:
			return loc[1]
		}
		_, size := utf8.DecodeRuneInString(text) // an empty match
		return size
	}, nil
}

func (t *BPE) readNormalizer(c *component, depth int) error {
	if c == nil {
		return nil
	}
	forms := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
	if form, ok := forms[c.Type]; ok {
		t.normalize = append(t.normalize, form.String)
		return nil
	}
	switch {
	case c.Type == "Lowercase":
		t.normalize = append(t.normalize, strings.ToLower)
		return nil
	case c.Type == "Prepend" || c.Type == "Replace":
		return t.readReplace(c)
	case c.Type == "Sequence" && depth < maxDepth:
		for i := range c.Normalizers {
			if err := t.readNormalizer(&c.Normalizers[i], depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("normalizer: type %q is not supported; expected NFC, NFD, NFKC, NFKD, Lowercase, Prepend, "+
		"Replace, Sequence or null", c.Type)
}

func (t *BPE) readAdded(f *tokenizerFile) error {
	for i, a := range f.Added {
		if a.Content == "" || a.ID > maxTokenID {
			return fmt.Errorf("added_tokens[%d]: content %q, id %d; expected a text and an id up to %d", i, a.Content,
				a.ID, maxTokenID)
		}
		t.added = append(t.added, added{a.Content, a.ID, a.LStrip, a.RStrip, a.SingleWord})
		t.text[a.ID] = a.Content
		t.firsts[a.Content[0]] = true
		if a.Special {
			t.special[a.ID] = true
		}
	}
	sort.SliceStable(t.added, func(i, j int) bool { return len(t.added[i].text) > len(t.added[j].text) })
	return nil
}

// unspell turns the printable form of bytes in a byte-level vocabulary back into bytes. Printable Latin-1 stands for
// itself. The other 68 bytes are shifted to U+0100 and above (GPT-2's table).
func unspell(spelled string) (string, bool) {
	out := make([]byte, 0, len(spelled))
	for _, r := range spelled {
		b, ok := spelling[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

var spelling = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae && r <= 0xff) {
			r = next
			next++
		}
		m[r] = byte(b)
	}
	return m
}()
