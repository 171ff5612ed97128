// A member on sarama as it was until 2023: with its settings as they are by default it commits in version 1.
package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Shopify/sarama"

	"matrix/journal"
)

type handler struct{ topic string }

func (h *handler) Setup(s sarama.ConsumerGroupSession) error {
	journal.Partitions("assigned", s.Claims()[h.topic])
	return nil
}

func (h *handler) Cleanup(s sarama.ConsumerGroupSession) error {
	journal.Partitions("revoked", s.Claims()[h.topic])
	return nil
}

func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		journal.Consumed(int(m.Partition), m.Offset)
		s.MarkMessage(m, "")
	}
	return nil
}

func config(o journal.Options) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = o.Name
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	c.Consumer.Group.Session.Timeout = o.Session
	c.Consumer.Group.Heartbeat.Interval = o.Heartbeat
	return c
}

func main() {
	o, ctx := journal.Parse()
	group, err := sarama.NewConsumerGroup(strings.Split(o.Bootstrap, ","), o.Group, config(o))
	if err != nil {
		journal.Error(err)
		return
	}
	journal.Started("github.com/Shopify/sarama", "sarama")
	go func() {
		for err := range group.Errors() {
			journal.Error(err)
		}
	}()
	h := &handler{topic: o.Topic}
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{o.Topic}, h)
		if errors.Is(err, sarama.ErrClosedConsumerGroup) || errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			journal.Error(err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	journal.Plain("closing")
	if err := group.Close(); err != nil {
		journal.Error(err)
	}
	journal.Plain("closed")
}
