// A member of a group with franz-go, in the consumer protocol or, with -classic, in the classic one.
//
// Prints lines of JSON as member.py does: {"assigned": [partitions]} when that has changed, and {"read": [partition, offset,
// value]} for each record, before its offset is committed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

type reporter struct {
	sync.Mutex
	owned map[int32]bool
}

func (r *reporter) say(fact string, value any) {
	line, err := json.Marshal(map[string]any{fact: value})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func (r *reporter) change(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		r.Lock()
		defer r.Unlock()
		for _, partitions := range changed {
			for _, partition := range partitions {
				if owned {
					r.owned[partition] = true
				} else {
					delete(r.owned, partition)
				}
			}
		}
		sorted := []int{}
		for partition := range r.owned {
			sorted = append(sorted, int(partition))
		}
		sort.Ints(sorted)
		r.say("assigned", sorted)
	}
}

func main() {
	classic := flag.Bool("classic", false, "use the classic protocol")
	flag.Parse()
	bootstrap, group, topic := flag.Arg(0), flag.Arg(1), flag.Arg(2)
	reporter := &reporter{owned: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(reporter.change(true)),
		kgo.OnPartitionsRevoked(reporter.change(false)),
		kgo.OnPartitionsLost(reporter.change(false)),
	}
	if !*classic {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for asked.Err() == nil {
		fetches := client.PollFetches(asked)
		fetches.EachRecord(func(record *kgo.Record) {
			reporter.say("read", []any{record.Partition, record.Offset, string(record.Value)})
		})
		// A commit that comes too late for a rebalance is repeated by the next owner.
		_ = client.CommitUncommittedOffsets(context.Background())
	}
	client.Close()
}
