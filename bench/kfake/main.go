// A kfake cluster of one broker for benchmarks and the report card, told what to keep where and how to behave by its flags.
//
// Prints "kfake ready port=N" when it listens and runs until it is told to stop.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	directory := flag.String("data", "", "directory for what is kept; none: all in memory")
	sync := flag.Bool("sync", false, "fsync every write before it is answered")
	port := flag.Int("port", 0, "port to listen on; 0: a free one")
	partitions := flag.Int("partitions", 1, "partitions of topics that do not say how many")
	configs := map[string]string{}
	flag.Func("set", "a configuration of the broker, KEY=VALUE; may be given often", func(text string) error {
		key, value, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("%q is not KEY=VALUE", text)
		}
		configs[key] = value
		return nil
	})
	flag.Parse()

	options := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.Ports(*port),
		kfake.DefaultNumPartitions(*partitions),
		kfake.AllowAutoTopicCreation(),
		kfake.BrokerConfigs(configs),
	}
	if *directory != "" {
		options = append(options, kfake.DataDir(*directory))
	}
	if *sync {
		options = append(options, kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	_, listening, err := net.SplitHostPort(cluster.ListenAddrs()[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, os.Interrupt)
	fmt.Printf("kfake ready port=%s\n", listening)
	<-told
}
