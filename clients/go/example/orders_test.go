// Package example tests an application that uses franz-go.
package example

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	kohort "kohort/clients/go"
)

// publish is the application: it writes an order.
func publish(bootstrap, topic, order string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte(order)}).FirstErr()
}

// work is the application: it reads orders in a group, and commits each.
func work(bootstrap, topic, group string, count int) ([]string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.ClientID("worker-1"),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var orders []string
	for len(orders) < count {
		fetches := client.PollRecords(context.Background(), 1)
		for _, record := range fetches.Records() {
			orders = append(orders, string(record.Value))
			if err := client.CommitRecords(context.Background(), record); err != nil {
				return orders, err
			}
		}
	}
	return orders, nil
}

func TestAnOrderIsWrittenOnce(t *testing.T) {
	broker := kohort.Start(t)
	topic := broker.Topic("orders", 1)
	lost := broker.Fault(kohort.Fields{"api": "Produce", "topic": topic, "disconnect": "after"})
	if err := publish(broker.Bootstrap, topic, "order 1"); err != nil {
		t.Fatal(err)
	}
	if lost.Hits() != 1 {
		t.Errorf("the fault has %d hits", lost.Hits())
	}
	if values := broker.Values(topic); !slices.Equal(values, []string{"order 1"}) {
		t.Errorf("the topic has %q", values)
	}
}

func TestOrdersAreCommitted(t *testing.T) {
	broker := kohort.Start(t)
	topic, group := broker.Topic("orders", 1), broker.Unique("workers")
	hold := broker.Hold(kohort.Fields{"api": "OffsetCommit", "group": group})
	broker.Write(topic, "order 1", "order 2")
	done := make(chan error)
	go func() {
		_, err := work(broker.Bootstrap, topic, group, 2)
		done <- err
	}()
	broker.WaitGroup(group, kohort.Fields{"wait": "stable", "members": 1, "topic": topic})
	hold.Wait(1)
	hold.Release()
	broker.WaitGroup(group, kohort.Fields{"topic": topic, "offset": 2})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if commits := broker.Requests(kohort.Fields{"api": "OffsetCommit", "client_id": "worker-1"}); len(commits) != 2 {
		t.Errorf("there were %d commits", len(commits))
	}
}
