package modelserver

// Tokenizer turns text into token ids and back.
type Tokenizer interface {
	// Encode appends the text's token ids to dst.
	Encode(dst []uint32, text string) []uint32
	// Decode appends the text of one token to dst.
	Decode(dst []byte, id uint32) []byte
}

// packed is the tokenizer that needs no vocabulary: four bytes of text are one
// token, little end first, as the estimate of the endpoint picker's
// token-producer has them, so that both see the same prefixes.
type packed struct{}

func (packed) Encode(dst []uint32, text string) []uint32 {
	for len(text) >= 4 {
		dst = append(dst, uint32(text[0])|uint32(text[1])<<8|uint32(text[2])<<16|uint32(text[3])<<24)
		text = text[4:]
	}
	var last uint32
	for i := range len(text) {
		last |= uint32(text[i]) << (8 * i)
	}
	if len(text) > 0 {
		dst = append(dst, last)
	}
	return dst
}

func (packed) Decode(dst []byte, id uint32) []byte {
	for ; id != 0; id >>= 8 {
		dst = append(dst, byte(id))
	}
	return dst
}

// tokenize is a prompt's token ids: at least one.
func (s *Server) tokenize(text string) []uint32 {
	ids := s.tokenizer.Encode(make([]uint32, 0, len(text)/4+1), text)
	if len(ids) == 0 {
		ids = append(ids, 0)
	}
	return ids
}

func (s *Server) detokenize(ids []uint32) string {
	var b []byte
	for _, id := range ids {
		b = s.tokenizer.Decode(b, id)
	}
	return string(b)
}
