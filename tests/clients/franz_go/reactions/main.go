// A client with franz-go that meets faults. The first line of its input has its settings as JSON; it answers each verb in a line of
// its own with {"values": [...]} or {"error": text}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	Bootstrap, Topic, Group, Id string
	IsNext                      bool // the protocol of KIP-848
}

func (s settings) options() []kgo.Opt {
	backoff := func(int) time.Duration { return 5 * time.Millisecond }
	options := []kgo.Opt{
		kgo.SeedBrokers(s.Bootstrap),
		kgo.DefaultProduceTopic(s.Topic),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
	}
	if s.Id != "" {
		options = append(options, kgo.TransactionalID(s.Id))
	}
	if s.Group == "" {
		return options
	}
	options = append(options,
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(50*time.Millisecond),
		kgo.SessionTimeout(time.Second),
	)
	if s.IsNext {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer())
	}
	return options
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	var given settings
	if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(given.options()...)
	answer(nil, err)
	for lines.Scan() {
		within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		answer(done(within, client, lines.Text()))
		cancel()
	}
	client.Close()
}

func done(within context.Context, client *kgo.Client, verb string) ([]string, error) {
	record := kgo.StringRecord("x")
	switch verb {
	case "send":
		return nil, client.ProduceSync(within, record).FirstErr()
	case "transact":
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := client.ProduceSync(within, record).FirstErr(); err != nil {
			return nil, err
		}
		return nil, client.EndTransaction(within, kgo.TryCommit)
	case "commit":
		return nil, client.CommitUncommittedOffsets(within)
	case "poll":
		fetches := client.PollFetches(within)
		values := []string{}
		fetches.EachRecord(func(found *kgo.Record) { values = append(values, string(found.Value)) })
		return values, fetches.Err()
	}
	panic(verb)
}

func answer(values []string, err error) {
	said := map[string]any{"values": values}
	if err != nil {
		said = map[string]any{"error": err.Error()}
	}
	line, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
