package stack

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/kvmanager"
)

// The start waits for subscribers as long as it may take itself, and names the server that lacks one.
func TestStartWaitsForSubscribers(t *testing.T) {
	t.Parallel()
	publisher, err := kvevents.NewPublisher(kvevents.PublisherOptions{Topic: kv.Topic{Pod: "a"},
		Bind: "tcp://" + anyPort})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	s := &Pool{pool: &plan.Pool{Servers: make([]plan.Server, 1)}, kv: &announcers{manager: new(kvmanager.Manager),
		list: map[int]*announcer{0: {Publisher: publisher, as: kv.Topic{Pod: "model-server-1"}}}}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = s.awaitSubscribers(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "model-server-1 has 0 of 1") {
		t.Errorf("without a subscriber: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- s.awaitSubscribers(t.Context()) }()
	subscriber, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handle: func(kvevents.Delivery) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	if err := subscriber.Dial(kv.Topic{Pod: "a"}, publisher.Endpoint(), ""); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("with one: %v", err)
	}
}
