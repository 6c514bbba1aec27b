// A client with franz-go that logs in. It reads verbs as lines of JSON, and answers each with {"values": [...]} or {"error": text}.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type login struct {
	Bootstrap, Mechanism, User, Password, Token, Authority, Certificate string
}

type verb struct {
	Verb, Topic, Value, Group, Id string
	Count                         int
}

func (l login) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(l.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(20 * time.Second)}
	switch l.Mechanism {
	case "PLAIN":
		return append(options, kgo.SASL(plain.Auth{User: l.User, Pass: l.Password}.AsMechanism())), nil
	case "SCRAM-SHA-256":
		return append(options, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism())), nil
	case "SCRAM-SHA-512":
		return append(options, kgo.SASL(scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism())), nil
	case "OAUTHBEARER":
		return append(options, kgo.SASL(oauth.Auth{Token: l.Token}.AsMechanism())), nil
	}
	authority, err := os.ReadFile(l.Authority)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(l.Certificate, l.Certificate)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	return append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{certificate}})), nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	var logged login
	answer(nil, json.Unmarshal(lines.Bytes(), &logged))
	options, err := logged.options()
	answer(nil, err)
	client, err := kgo.NewClient(options...)
	answer(nil, err)
	for lines.Scan() {
		var asked verb
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		answer(asked.done(within, client, options))
		cancel()
	}
	client.Close()
}

func (v verb) done(within context.Context, client *kgo.Client, options []kgo.Opt) ([]string, error) {
	record := &kgo.Record{Topic: v.Topic, Value: []byte(v.Value)}
	switch v.Verb {
	case "send":
		return nil, client.ProduceSync(within, record).FirstErr()
	case "transact":
		producer, err := kgo.NewClient(append(options, kgo.TransactionalID(v.Id))...)
		if err != nil {
			return nil, err
		}
		defer producer.Close()
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := producer.ProduceSync(within, record).FirstErr(); err != nil {
			return nil, err
		}
		return nil, producer.EndTransaction(within, kgo.TryCommit)
	}
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	consumer, err := kgo.NewClient(append(options, kgo.ConsumerGroup(v.Group), kgo.ConsumeTopics(v.Topic), start, kgo.DisableAutoCommit())...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	values := []string{}
	for len(values) < v.Count {
		fetches := consumer.PollFetches(within)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(found *kgo.Record) { values = append(values, string(found.Value)) })
	}
	return values, consumer.CommitUncommittedOffsets(within)
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
