// Package kohort starts Kohort brokers for tests, and lets them misbehave.
//
// Fields of faults, holds, groups and events have the names of docs/testing.md.
package kohort

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Fields are the fields of a request to the control port.
type Fields map[string]any

// Timeout is how long a wait takes at most.
var Timeout = 10 * time.Second

// Broker is the part of a broker that one test has. What the test made there ends with it.
type Broker struct {
	// Bootstrap is HOST:PORT for clients.
	Bootstrap string
	// Control is HOST:PORT of the control port.
	Control string
	// Scope is the name of what this test makes.
	Scope string

	t      testing.TB
	unique string
}

// Start starts a broker, which ends with the test. KOHORT_COMMAND is the command, "kohort" by default.
func Start(t testing.TB, options ...string) *Broker {
	t.Helper()
	command := strings.Fields(os.Getenv("KOHORT_COMMAND"))
	if len(command) == 0 {
		command = []string{"kohort"}
	}
	arguments := append(command[1:], "serve", "--for-tests", "--json", "--exit-with-parent", "--log-level", "error")
	process := exec.Command(command[0], append(arguments, options...)...)
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatalf("kohort serve does not start: %v", err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		_ = process.Wait()
	})
	var ready struct{ Bootstrap, Control string }
	if err := json.NewDecoder(output).Decode(&ready); err != nil {
		t.Fatalf("kohort serve does not become ready: %v", err)
	}
	if ready.Control == "" {
		t.Fatal("kohort serve has no control port: pip install 'kohort[testing]'")
	}
	return Connect(t, ready.Bootstrap, ready.Control)
}

// Connect uses a broker that runs already, beside other tests.
func Connect(t testing.TB, bootstrap, control string) *Broker {
	t.Helper()
	unique := strconv.FormatUint(rand.Uint64(), 36)
	broker := &Broker{Bootstrap: bootstrap, Control: control, Scope: t.Name() + "-" + unique, t: t, unique: unique}
	broker.send("PUT", "/journal", nil, Fields{"is_on": true}, nil)
	t.Cleanup(func() { broker.send("DELETE", "/scopes/"+url.PathEscape(broker.Scope), nil, nil, nil) })
	return broker
}

// Unique is a name that no other test has.
func (b *Broker) Unique(name string) string { return name + "-" + b.unique }

// Topic creates a topic with a new name, and returns the name.
func (b *Broker) Topic(name string, partitions int) string {
	b.t.Helper()
	created := b.Unique(name)
	b.send("POST", "/topics", nil, Fields{"name": created, "partitions": partitions, "scope": b.Scope}, nil)
	return created
}

// Write writes values to partition 0 of a topic.
func (b *Broker) Write(topic string, values ...string) {
	b.t.Helper()
	records := make([]Fields, len(values))
	for i, value := range values {
		records[i] = Fields{"value": value}
	}
	b.send("POST", "/topics/"+url.PathEscape(topic)+"/records", nil, Fields{"records": records}, nil)
}

// Values are the values of the first 100 records of partition 0 that are committed.
func (b *Broker) Values(topic string) []string {
	b.t.Helper()
	var answer struct{ Records []struct{ Value string } }
	b.send("GET", "/topics/"+url.PathEscape(topic)+"/records", Fields{"isolation": "read_committed"}, nil, &answer)
	values := make([]string, len(answer.Records))
	for i, record := range answer.Records {
		values[i] = record.Value
	}
	return values
}

// Handle is a fault or a hold.
type Handle struct {
	ID     string
	broker *Broker
	path   string
}

// Fault lets requests fail: filters, a trigger, and one effect.
func (b *Broker) Fault(fields Fields) *Handle { b.t.Helper(); return b.add("/faults", fields) }

// Hold holds requests, their answers, or a point inside the broker.
func (b *Broker) Hold(fields Fields) *Handle { b.t.Helper(); return b.add("/holds", fields) }

func (b *Broker) add(path string, fields Fields) *Handle {
	b.t.Helper()
	body := Fields{"scope": b.Scope}
	for name, value := range fields {
		body[name] = value
	}
	var added struct{ ID string }
	b.send("POST", path, nil, body, &added)
	return &Handle{ID: added.ID, broker: b, path: path + "/" + added.ID}
}

// Hits is how many requests it has hit, or held.
func (h *Handle) Hits() int { h.broker.t.Helper(); return h.get(nil) }

// Wait waits until a fault has so many hits, or a hold holds so many.
func (h *Handle) Wait(count int) {
	h.broker.t.Helper()
	h.get(Fields{"wait": count, "timeout": Timeout.Seconds()})
}

func (h *Handle) get(query Fields) int {
	h.broker.t.Helper()
	var view struct{ Hits int }
	h.broker.send("GET", h.path, query, nil, &view)
	return view.Hits
}

// Release lets go what a hold holds, and ends it.
func (h *Handle) Release() {
	h.broker.t.Helper()
	h.broker.send("POST", h.path+"/release", nil, Fields{}, nil)
}

// Remove ends it.
func (h *Handle) Remove() { h.broker.t.Helper(); h.broker.send("DELETE", h.path, nil, nil, nil) }

// WaitGroup waits until a group is as the fields say: wait (a state), members, topic, partition, member, offset, lag.
func (b *Broker) WaitGroup(group string, wanted Fields) map[string]any {
	b.t.Helper()
	query := Fields{"timeout": Timeout.Seconds()}
	for name, value := range wanted {
		query[name] = value
	}
	view := map[string]any{}
	b.send("GET", "/groups/"+url.PathEscape(group), query, nil, &view)
	return view
}

// Event lets something happen, such as "expire_member".
func (b *Broker) Event(name string, fields Fields) {
	b.t.Helper()
	b.send("POST", "/events/"+name, nil, fields, nil)
}

// Requests are the last requests of clients that match the filters.
func (b *Broker) Requests(filters Fields) []map[string]any {
	b.t.Helper()
	var answer struct{ Requests []map[string]any }
	b.send("GET", "/requests", filters, nil, &answer)
	return answer.Requests
}

func (b *Broker) send(method, path string, query, body Fields, answer any) {
	b.t.Helper()
	if err := b.exchange(method, path, query, body, answer); err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (b *Broker) exchange(method, path string, query, body Fields, answer any) error {
	values := url.Values{}
	for name, value := range query {
		values.Set(name, fmt.Sprint(value))
	}
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		content = nil
	}
	request, err := http.NewRequest(method, "http://"+b.Control+path+"?"+values.Encode(), bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("KOHORT_CONTROL_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		var problem struct{ Detail string }
		_ = json.Unmarshal(content, &problem)
		return fmt.Errorf("%s: %s", response.Status, problem.Detail)
	}
	if answer == nil || len(content) == 0 {
		return nil
	}
	return json.Unmarshal(content, answer)
}
