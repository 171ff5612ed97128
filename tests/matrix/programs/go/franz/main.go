// A member on franz-go; it commits what it has consumed after each poll.
package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"matrix/journal"
)

func report(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		for _, partitions := range topics {
			journal.Partitions(event, partitions)
		}
	}
}

func options(o journal.Options) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.Bootstrap, ",")...),
		kgo.ClientID(o.Name),
		kgo.ConsumerGroup(o.Group),
		kgo.ConsumeTopics(o.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(o.Session),
		kgo.HeartbeatInterval(o.Heartbeat),
		kgo.OnPartitionsAssigned(report("assigned")),
		kgo.OnPartitionsRevoked(report("revoked")),
		kgo.OnPartitionsLost(report("lost")),
	}
	switch {
	case o.Protocol == "consumer":
		opts = append(opts, kgo.ServerSideBalancer())
	case o.Assignor == "range":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	}
	if o.Instance != "" {
		opts = append(opts, kgo.InstanceID(o.Instance))
	}
	return opts
}

func main() {
	o, ctx := journal.Parse()
	client, err := kgo.NewClient(options(o)...)
	if err != nil {
		journal.Error(err)
		return
	}
	journal.Started("github.com/twmb/franz-go", "franz-go")
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 500)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				journal.Error(err)
			}
		})
		records := fetches.Records()
		for _, r := range records {
			journal.Consumed(int(r.Partition), r.Offset)
		}
		if len(records) > 0 {
			if err := client.CommitRecords(context.Background(), records...); err != nil {
				journal.Error(err)
			} else {
				journal.Plain("committed")
			}
		}
		client.AllowRebalance()
	}
	journal.Plain("closing")
	client.AllowRebalance()
	if err := client.LeaveGroupContext(context.Background()); err != nil {
		journal.Error(err)
	}
	client.Close()
	journal.Plain("closed")
}
