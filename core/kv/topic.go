package kv

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TopicPrefix begins every topic; subscribers filter by it.
const TopicPrefix = "kv@"

// ReplayEnd is the sequence number that ends a replay.
const ReplayEnd = ^uint64(0)

// Topic is "kv@<pod>@<model>". In the ecosystem pod is the endpoint's
// "ip:port" exactly as the endpoint picker knows it; a name never matches
// there.
type Topic struct{ Pod, Model string }

// String returns the topic as it travels in the first frame.
func (t Topic) String() string { return TopicPrefix + t.Pod + "@" + t.Model }

// MaxNameBytes is the longest name of a pod or a model that is taken from a
// message: room for namespace and name of a Kubernetes pod.
const MaxNameBytes = 320

// CheckName returns an error for a name from a message that is not valid. Names become labels of metrics and words in a
// log.
func CheckName(what, name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%s has %d bytes, the limit is %d", what, len(name), MaxNameBytes)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%s %.80q is not plain UTF-8 text", what, name)
	}
	return nil
}

// ParseTopic reads a topic. Anything that begins with "kv@" and is made of names
// is accepted; like the recorded endpoint picker it gives no model when there
// are not exactly two parts, so that such events match no request.
func ParseTopic(s string) (Topic, error) {
	rest, ok := strings.CutPrefix(s, TopicPrefix)
	if !ok {
		return Topic{}, fmt.Errorf("topic %.80q does not begin with %q: expected kv@<ip>:<port>@<model>", s,
			TopicPrefix)
	}
	pod, model, _ := strings.Cut(rest, "@")
	if strings.Contains(model, "@") {
		model = ""
	}
	if err := CheckName("the pod's name", pod); err != nil {
		return Topic{}, err
	}
	if err := CheckName("the model's name", model); err != nil {
		return Topic{}, err
	}
	return Topic{pod, model}, nil
}

// EncodeSequence returns the second frame: 8 bytes, most significant first.
func EncodeSequence(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8), seq)
}

// DecodeSequence reads the second frame. Bytes after the eighth are ignored,
// as the recorded endpoint picker does.
func DecodeSequence(frame []byte) (uint64, error) {
	if len(frame) < 8 {
		return 0, fmt.Errorf("sequence frame has %d bytes: expected 8, most significant first", len(frame))
	}
	return binary.BigEndian.Uint64(frame), nil
}
