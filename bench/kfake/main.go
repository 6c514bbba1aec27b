// A kfake cluster of one broker for the benchmark, told what to keep where by its flags.
//
// Prints "kfake ready port=N" when it listens and runs until it is told to stop.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	directory := flag.String("data", "", "directory for what is kept; none: all in memory")
	sync := flag.Bool("sync", false, "fsync every write before it is answered")
	flag.Parse()

	options := []kfake.Opt{kfake.NumBrokers(1)}
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
	_, port, err := net.SplitHostPort(cluster.ListenAddrs()[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, os.Interrupt)
	fmt.Printf("kfake ready port=%s\n", port)
	<-told
}
