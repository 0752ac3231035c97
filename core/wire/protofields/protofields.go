// Package protofields reads protobuf messages without their descriptors: Each calls back for each field.
package protofields

import "google.golang.org/protobuf/encoding/protowire"

// Each calls do for each field of a message, with the value of a varint or of a fixed64, or with the bytes of a field
// that has a length. It returns the first error of do, or the message's first mistake.
func Each(msg []byte, do func(num protowire.Number, typ protowire.Type, number uint64, bytes []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		var number uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(msg)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(msg)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := do(num, typ, number, bytes); err != nil {
			return err
		}
		msg = msg[n:]
	}
	return nil
}
