package tokens

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Recorded with Hugging Face tokenizers 0.23.3 on testdata/sentencepiece.json,
// in the form of Llama 2 (normalizers) and of Mistral (Metaspace).
func TestSentencePiece(t *testing.T) {
	var cases []struct {
		Name         string
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Normalizer   json.RawMessage
		Encodings    []struct {
			Text, Back string
			IDs        []uint32
		}
	}
	if err := json.Unmarshal(readFile(t, "testdata/sentencepiece-encodings.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var file map[string]any
			if err := json.Unmarshal(readFile(t, "testdata/sentencepiece.json"), &file); err != nil {
				t.Fatal(err)
			}
			file["pre_tokenizer"], file["normalizer"] = c.PreTokenizer, c.Normalizer
			data, err := json.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := ParseTokenizerJSON(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Encodings {
				got := b.Encode([]uint32{}, e.Text)
				if diff := cmp.Diff(e.IDs, got); diff != "" {
					t.Errorf("%q: %s\n%q", e.Text, diff, pieces(b, got))
				}
				if back := Decode(b, got); back != e.Back && c.Name != "never" {
					t.Errorf("%q came back as %q, recorded %q", e.Text, back, e.Back)
				}
			}
		})
	}
}
