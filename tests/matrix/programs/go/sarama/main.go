// A member on sarama; it marks each record, and sarama commits what is marked every half second and at a session's end.
package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/IBM/sarama"

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
	for {
		select {
		case <-s.Context().Done():
			return nil
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			journal.Consumed(int(m.Partition), m.Offset)
			s.MarkMessage(m, "")
		}
	}
}

func config(o journal.Options) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = o.Name
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	c.Consumer.Group.Session.Timeout = o.Session
	c.Consumer.Group.Heartbeat.Interval = o.Heartbeat
	c.Consumer.Group.InstanceId = o.Instance
	strategy := sarama.NewBalanceStrategyRange()
	if o.Assignor == "sticky" {
		strategy = sarama.NewBalanceStrategySticky()
	}
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	return c
}

func main() {
	o, ctx := journal.Parse()
	group, err := sarama.NewConsumerGroup(strings.Split(o.Bootstrap, ","), o.Group, config(o))
	if err != nil {
		journal.Error(err)
		return
	}
	journal.Started("github.com/IBM/sarama", "sarama")
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
