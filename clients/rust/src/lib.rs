//! Kohort brokers for tests, which misbehave when the test says so.
//!
//! Fields of faults, holds, groups and events have the names of docs/testing.md, and are given by `serde_json::json!`. What goes wrong
//! in a test helper panics, as an assertion does; the functions `try_*` return it.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many seconds a wait takes at most.
pub const TIMEOUT: u64 = 10;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The control port refused a request, or does not answer.
#[derive(Debug)]
pub struct ControlError {
    /// Of HTTP; 409 if a wait ended without success, 0 if there was no answer.
    pub status: u16,
    /// A sentence.
    pub detail: String,
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.detail, self.status)
    }
}

impl std::error::Error for ControlError {}

/// A broker, or the part of one that a test has. What the test made there ends with this value.
pub struct Broker {
    bootstrap: String,
    control: String,
    unique: String,
    scope: String,
    process: Option<Child>,
}

impl Broker {
    /// Start a broker, which ends with this value or with this process. The command is that of the environment variable
    /// KOHORT_COMMAND, or `kohort`.
    pub fn start(options: &[&str]) -> Broker {
        let command = std::env::var("KOHORT_COMMAND").unwrap_or_else(|_| "kohort".into());
        let mut words = command.split(' ');
        let mut process = Command::new(words.next().unwrap_or("kohort"))
            .args(words)
            .args(["serve", "--for-tests", "--json", "--exit-with-parent", "--log-level", "error"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command} does not start: {error}"));
        let mut line = String::new();
        let output = process.stdout.take().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut line).expect("the output is text");
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("kohort serve does not become ready: {line}"));
        let address = |name: &str| {
            ready[name]
                .as_str()
                .unwrap_or_else(|| panic!("kohort serve has no {name}: pip install 'kohort[testing]'"))
                .to_owned()
        };
        let mut broker = Broker::connect(&address("bootstrap"), &address("control"));
        broker.process = Some(process);
        broker.send("PUT", "/journal", json!({}), Some(json!({"is_on": true})));
        broker
    }

    /// Use a broker that runs already, beside other tests.
    pub fn connect(bootstrap: &str, control: &str) -> Broker {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{:x}-{}-{number}", nanoseconds % 0xffff_ffff, std::process::id());
        Broker {
            bootstrap: bootstrap.to_owned(),
            control: control.to_owned(),
            scope: format!("test-{unique}"),
            unique,
            process: None,
        }
    }

    /// HOST:PORT for clients.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// HOST:PORT of the control port.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// A name that no other test has.
    pub fn unique(&self, name: &str) -> String {
        format!("{name}-{}", self.unique)
    }

    /// Create a topic with a new name, and return the name.
    pub fn topic(&self, name: &str, partitions: u32) -> String {
        let created = self.unique(name);
        let body = json!({"name": created, "partitions": partitions, "scope": self.scope});
        self.send("POST", "/topics", json!({}), Some(body));
        created
    }

    /// Write values to partition 0 of a topic.
    pub fn write(&self, topic: &str, values: &[&str]) {
        let records: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
        self.send("POST", &format!("/topics/{}/records", quoted(topic)), json!({}), Some(json!({"records": records})));
    }

    /// The values of the first 100 records of partition 0 that are committed.
    pub fn values(&self, topic: &str) -> Vec<String> {
        let query = json!({"isolation": "read_committed"});
        let answer = self.send("GET", &format!("/topics/{}/records", quoted(topic)), query, None);
        let records = answer["records"].as_array().cloned().unwrap_or_default();
        records.iter().map(|each| each["value"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Let requests fail: filters, a trigger, and one effect.
    pub fn fault(&self, fields: Value) -> Handle<'_> {
        self.try_fault(fields).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As `fault`.
    pub fn try_fault(&self, fields: Value) -> Result<Handle<'_>, ControlError> {
        self.add("/faults", fields)
    }

    /// Hold requests, their answers, or a point inside the broker.
    pub fn hold(&self, fields: Value) -> Handle<'_> {
        self.add("/holds", fields).unwrap_or_else(|error| panic!("{error}"))
    }

    fn add(&self, path: &str, mut fields: Value) -> Result<Handle<'_>, ControlError> {
        fields["scope"] = json!(self.scope);
        let view = self.try_send("POST", path, json!({}), Some(fields))?;
        Ok(Handle { broker: self, path: format!("{path}/{}", view["id"].as_str().unwrap_or_default()) })
    }

    /// Wait until a group is as the fields say: wait (a state), members, topic, partition, member, offset, lag.
    pub fn wait_group(&self, group: &str, mut wanted: Value) -> Value {
        wanted["timeout"] = json!(TIMEOUT);
        self.send("GET", &format!("/groups/{}", quoted(group)), wanted, None)
    }

    /// Let something happen, such as `expire_member`.
    pub fn event(&self, name: &str, fields: Value) -> Value {
        self.send("POST", &format!("/events/{name}"), json!({}), Some(fields))
    }

    /// The last requests of clients that match the filters; with `wait`, when there are so many.
    pub fn requests(&self, filters: Value) -> Vec<Value> {
        self.send("GET", "/requests", filters, None)["requests"].as_array().cloned().unwrap_or_default()
    }

    /// A request to the control port that has no method here.
    pub fn send(&self, method: &str, path: &str, query: Value, body: Option<Value>) -> Value {
        self.try_send(method, path, query, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// As `send`.
    pub fn try_send(&self, method: &str, path: &str, query: Value, body: Option<Value>) -> Result<Value, ControlError> {
        let mut request = ureq::request(method, &format!("http://{}{path}", self.control));
        for (name, value) in query.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            request = request.query(name, &text);
        }
        if let Ok(token) = std::env::var("KOHORT_CONTROL_TOKEN") {
            request = request.set("Authorization", &format!("Bearer {token}"));
        }
        let answered = match body {
            Some(body) => request.send_json(body),
            None => request.call(),
        };
        match answered {
            Ok(answer) if answer.status() == 204 => Ok(Value::Null),
            Ok(answer) => answer.into_json().map_err(|error| ControlError { status: 0, detail: error.to_string() }),
            Err(ureq::Error::Status(status, answer)) => {
                let problem: Value = answer.into_json().unwrap_or_default();
                Err(ControlError { status, detail: problem["detail"].as_str().unwrap_or_default().to_owned() })
            }
            Err(error) => Err(ControlError { status: 0, detail: error.to_string() }),
        }
    }
}

fn quoted(text: &str) -> String {
    let quote = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(quote).collect()
}

impl Drop for Broker {
    fn drop(&mut self) {
        // A destructor must not panic; without an answer there is nothing to remove.
        let _ = self.try_send("DELETE", &format!("/scopes/{}", quoted(&self.scope)), json!({}), None);
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A fault or a hold.
pub struct Handle<'a> {
    broker: &'a Broker,
    path: String,
}

impl Handle<'_> {
    /// All fields, as they are now.
    pub fn state(&self) -> Value {
        self.broker.send("GET", &self.path, json!({}), None)
    }

    /// How many requests it has hit, or held.
    pub fn hits(&self) -> u64 {
        self.state()["hits"].as_u64().unwrap_or_default()
    }

    /// Wait until a fault has so many hits, or a hold holds so many.
    pub fn wait(&self, count: u64) {
        self.broker.send("GET", &self.path, json!({"wait": count, "timeout": TIMEOUT}), None);
    }

    /// Let all go that a hold holds, and end it.
    pub fn release(&self) {
        self.broker.send("POST", &format!("{}/release", self.path), json!({}), Some(json!({})));
    }

    /// End it.
    pub fn remove(&self) {
        self.broker.send("DELETE", &self.path, json!({}), None);
    }
}
