package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/kv"
)

// serveReplay serves one peer of the replay socket. A request is ["", first sequence number]. The answer is one
// message ["", topic, sequence, payload] for every buffered message from that number on, then ["", topic, 2^64-1,
// ""], as vLLM sends it today.
func (p *Publisher) serveReplay(ctx context.Context, c *conn) {
	for ctx.Err() == nil {
		frames, err := c.Recv()
		if err != nil {
			return
		}
		if len(frames) == 0 || len(frames) > 2 || len(frames[len(frames)-1]) != 8 {
			p.opts.Log.Warn("replay request refused: expected an empty frame and 8 bytes of sequence", "frames",
				len(frames))
			return
		}
		from := binary.BigEndian.Uint64(frames[len(frames)-1])
		for {
			m, ok := p.bufferedFrom(from)
			if !ok {
				break
			}
			if c.Send(nil, p.topic, kv.EncodeSequence(m.seq), m.payload) != nil {
				return
			}
			from = m.seq + 1
		}
		if c.Send(nil, p.topic, kv.EncodeSequence(kv.ReplayEnd), nil) != nil {
			return
		}
	}
}

// bufferedFrom returns the first buffered message with a sequence number of from or higher.
func (p *Publisher) bufferedFrom(from uint64) (published, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.buffer) == 0 || from > p.buffer[len(p.buffer)-1].seq {
		return published{}, false
	}
	first := p.buffer[0].seq
	return p.buffer[max(from, first)-first], true
}

// askReplay requests messages from a replay endpoint and passes each to a callback until the end marker. The context
// bounds the time.
func askReplay(ctx context.Context, endpoint string, from uint64, maxMessage int,
	each func(topic string, seq uint64, payload []byte)) error {
	address, err := endpointAddress(endpoint)
	if err != nil {
		return err
	}
	d := net.Dialer{Timeout: handshakeTimeout}
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	c, err := handshake(nc, zmq4.Dealer, false, maxMessage)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Send(nil, kv.EncodeSequence(from)); err != nil {
		return err
	}
	for {
		frames, err := c.Recv()
		if err != nil {
			return err
		}
		if len(frames) > 0 && len(frames[0]) == 0 {
			frames = frames[1:]
		}
		var topic string
		switch len(frames) {
		case 3:
			topic, frames = string(frames[0]), frames[1:]
		case 2: // older vLLM leaves the topic out
		default:
			return fmt.Errorf("replay from %s: %d frames, expected [\"\", topic, sequence, payload]", endpoint,
				len(frames)+1)
		}
		seq, err := kv.DecodeSequence(frames[0])
		if err != nil {
			return fmt.Errorf("replay from %s: %w", endpoint, err)
		}
		if seq == kv.ReplayEnd {
			return nil
		}
		if len(frames[1]) == 0 {
			return errors.New("replay with an empty payload")
		}
		each(topic, seq, frames[1])
	}
}
