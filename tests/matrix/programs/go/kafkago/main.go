// A member on segmentio/kafka-go, by its ConsumerGroup, which tells what was assigned. What the readers of a
// generation have consumed is committed by one goroutine, all that waits at once.
package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"matrix/journal"
)

func consume(ctx context.Context, o journal.Options, a kafka.PartitionAssignment, consumed chan<- kafka.Message) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: strings.Split(o.Bootstrap, ","), Topic: o.Topic, Partition: a.ID, MaxWait: 300 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(a.Offset); err != nil {
		journal.Error(err)
		return
	}
	for {
		m, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil || errors.Is(err, kafka.ErrGenerationEnded) {
			return
		}
		if err != nil {
			journal.Error(err)
			time.Sleep(200 * time.Millisecond)
			continue
		}
		journal.Consumed(m.Partition, m.Offset)
		consumed <- m
	}
}

func commit(gen *kafka.Generation, consumed <-chan kafka.Message) {
	for m := range consumed {
		next := map[int]int64{m.Partition: m.Offset + 1}
		for waiting := len(consumed); waiting > 0; waiting-- {
			m = <-consumed
			next[m.Partition] = m.Offset + 1
		}
		if err := gen.CommitOffsets(map[string]map[int]int64{m.Topic: next}); err != nil {
			journal.Error(err)
		} else {
			journal.Plain("committed")
		}
	}
}

func generation(o journal.Options, gen *kafka.Generation) {
	assignments := gen.Assignments[o.Topic]
	partitions := []int{}
	for _, a := range assignments {
		partitions = append(partitions, a.ID)
	}
	journal.Partitions("assigned", partitions)
	gen.Start(func(ctx context.Context) {
		consumed := make(chan kafka.Message, 1000)
		var readers, committer sync.WaitGroup
		for _, a := range assignments {
			readers.Go(func() { consume(ctx, o, a, consumed) })
		}
		committer.Go(func() { commit(gen, consumed) })
		<-ctx.Done()
		readers.Wait()
		close(consumed)
		committer.Wait()
		journal.Partitions("revoked", partitions)
	})
}

func main() {
	o, ctx := journal.Parse()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                o.Group,
		Brokers:           strings.Split(o.Bootstrap, ","),
		Topics:            []string{o.Topic},
		Dialer:            &kafka.Dialer{ClientID: o.Name, Timeout: 10 * time.Second, DualStack: true},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		SessionTimeout:    o.Session,
		HeartbeatInterval: o.Heartbeat,
		StartOffset:       kafka.FirstOffset,
	})
	if err != nil {
		journal.Error(err)
		return
	}
	journal.Started("github.com/segmentio/kafka-go", "kafka-go")
	for ctx.Err() == nil {
		gen, err := group.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			journal.Error(err)
			continue
		}
		generation(o, gen)
	}
	if err := group.Close(); err != nil {
		journal.Error(err)
	}
	journal.Plain("closing")
	journal.Plain("closed")
}
