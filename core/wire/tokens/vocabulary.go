package tokens

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Vocabulary holds the words of a simulated model's answers. Each word is one token of the model's tokenizer, so that a
// text and its token ids agree.
type Vocabulary struct {
	words []string
	ids   []uint32
}

const vocabularySize = 512

// NewVocabulary chooses words for a tokenizer.
func NewVocabulary(t Tokenizer) *Vocabulary {
	var v Vocabulary
	add := func(word string) {
		if ids := t.Encode(nil, word); len(ids) == 1 {
			v.words, v.ids = append(v.words, word), append(v.ids, ids[0])
		}
	}
	for w := range strings.FieldsSeq(commonWords) {
		add(" " + w)
	}
	d := machine.NewDraw(0, "server", "vocabulary", 0)
	for range 20 * vocabularySize {
		if len(v.words) >= vocabularySize {
			break
		}
		add(" " + d.Letters(3)) // four bytes, so one token of Packed
	}
	for c := byte('a'); c <= 'z' && len(v.words) == 0; c++ {
		// A tokenizer without words gives a vocabulary of letters.
		v.words, v.ids = append(v.words, string(c)), append(v.ids, uint32(c))
	}
	return &v
}

const commonWords = `the wind rises over a long quiet field and one small wing turns slowly into flow while light falls
	on wood metal glass water stone sand smoke rain sound shape lift drag speed scale model test measure
	number figure result trace line curve point edge force weight balance pressure level stream tunnel
	fan blade motor engine signal cable sensor gauge table chart paper record note answer question
	reason method theory practice`

// Answer returns the base of a model's answer to the request with this id. It is the same in every run with the same
// seed, in real and in virtual time.
func Answer(seed uint64, request string) (base uint64) {
	d := machine.DrawFor(seed, "server", "text", request)
	return d.Uint64()
}

// Pick returns word number i of the text that base stands for.
func (v *Vocabulary) Pick(base uint64, i int) (id uint32, word string) {
	z := base + uint64(i)*0x9e3779b97f4a7c15 // splitmix64 at its i-th step
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	n := (z >> 32) * uint64(len(v.words)) >> 32
	return v.ids[n], v.words[n]
}

// Len returns the number of words.
func (v *Vocabulary) Len() int { return len(v.words) }

// Word returns word number n and its token id.
func (v *Vocabulary) Word(n int) (id uint32, word string) { return v.ids[n], v.words[n] }
