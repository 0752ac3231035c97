package kvevents

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/kv"
)

// outbox holds the messages that wait for one subscriber.
type outbox struct {
	messages chan published

	mu     sync.Mutex
	topics map[string]int
}

// serve handles one subscriber: it reads subscriptions and sends messages.
func (p *Publisher) serve(ctx context.Context, c *conn) {
	o := &outbox{messages: make(chan published, p.opts.QueueMessages), topics: map[string]int{}}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.subs[o] = struct{}{}
		p.serving.Add(1) // under the lock, because Close waits for it later
	}
	p.mu.Unlock()
	if closed {
		return
	}
	defer p.serving.Done()
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		p.write(c, o)
		c.Close()
	}()
	for {
		frames, err := c.Recv()
		if err != nil {
			if ctx.Err() == nil && !ended(err) {
				p.opts.Log.Debug("KV event subscriber left", "error", err)
			}
			break
		}
		if err := o.subscription(frames); err != nil {
			p.opts.Log.Warn("KV event subscriber refused", "error", err)
			break
		}
	}
	c.Close()
	p.mu.Lock()
	if _, there := p.subs[o]; there {
		delete(p.subs, o)
		close(o.messages)
	}
	p.mu.Unlock()
	<-writer
}

func (p *Publisher) write(c *conn, o *outbox) {
	failed := false
	for m := range o.messages { // after a failure, drain the rest, which cannot be sent
		failed = failed || c.Send(p.topic, kv.EncodeSequence(m.seq), m.payload) != nil
	}
}

// maxTopics bounds the subscriptions of one subscriber.
const maxTopics = 1024

// subscription adds a subscription (first byte 1) or removes one (0).
func (o *outbox) subscription(frames [][]byte) error {
	if len(frames) != 1 || len(frames[0]) == 0 || frames[0][0] > 1 {
		return errors.New("a subscriber may send subscriptions only")
	}
	topic := string(frames[0][1:])
	o.mu.Lock()
	defer o.mu.Unlock()
	if frames[0][0] == 1 {
		if len(o.topics) >= maxTopics {
			return errors.New("too many subscriptions")
		}
		o.topics[topic]++
	} else if o.topics[topic]--; o.topics[topic] <= 0 {
		delete(o.topics, topic)
	}
	return nil
}

func (o *outbox) wants(topic []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for t := range o.topics {
		if strings.HasPrefix(string(topic), t) {
			return true
		}
	}
	return false
}
