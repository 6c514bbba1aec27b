/**
 * Kohort brokers for tests, which misbehave when the test says so. No dependencies.
 *
 * Fields of faults, holds, groups and events have the names of docs/testing.md.
 */

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

/** How many seconds a wait takes at most. */
export const TIMEOUT = 10;

/** The control port refused a request. `status` is that of HTTP; `state` is what there was when a wait ended. */
export class ControlError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.name = "ControlError";
    this.status = status;
    this.state = problem.state;
  }
}

/** A broker, or the part of one that a test has. */
export class Broker {
  #process;
  #unique = randomUUID().slice(0, 8);

  /**
   * Use a broker that runs already.
   *
   * @param {string} bootstrap HOST:PORT for clients
   * @param {string} control HOST:PORT of the control port
   */
  constructor(bootstrap, control, { scope = "test", token = process.env.KOHORT_CONTROL_TOKEN } = {}) {
    this.bootstrap = bootstrap;
    this.control = control;
    this.scope = `${scope}-${this.#unique}`;
    this.token = token;
  }

  /**
   * Start a broker, which ends with `stop` or with this process.
   *
   * @param {string[]} options of `kohort serve`
   * @param {string} command by default that of KOHORT_COMMAND, or `kohort`
   */
  static async start(options = [], { command = process.env.KOHORT_COMMAND ?? "kohort", ...more } = {}) {
    const [program, ...first] = command.split(" ");
    const presets = ["--for-tests", "--json", "--exit-with-parent", "--log-level", "error"];
    const child = spawn(program, [...first, "serve", ...presets, ...options], { stdio: ["ignore", "pipe", "inherit"] });
    const line = await new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).once("line", resolve);
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`kohort serve ended with exit code ${code}`)));
    });
    const ready = JSON.parse(line);
    if (!ready.control) throw new Error("kohort serve has no control port: pip install 'kohort[testing]'");
    const broker = new Broker(ready.bootstrap, ready.control, more);
    broker.#process = child;
    await broker.send("PUT", "/journal", { body: { is_on: true } });
    return broker;
  }

  /** End what this test made, and the broker if this object has started it. */
  async stop() {
    await this.send("DELETE", `/scopes/${encodeURIComponent(this.scope)}`);
    if (!this.#process) return;
    const ended = new Promise((resolve) => this.#process.removeAllListeners("exit").once("exit", resolve));
    this.#process.kill("SIGTERM");
    await ended;
  }

  /** `await using broker = await Broker.start()` stops it at the end of the block. */
  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }

  /** A name that no other test has. */
  unique(name) {
    return `${name}-${this.#unique}`;
  }

  /** Create a topic with a new name, and return the name. */
  async topic(name = "topic", { partitions, configs } = {}) {
    const created = this.unique(name);
    await this.send("POST", "/topics", { body: { name: created, partitions, configs, scope: this.scope } });
    return created;
  }

  /** Write values, or records with `key`, `value`, `headers`, `partition`. Returns their offsets. */
  async write(topic, ...records) {
    const body = { records: records.map((each) => (typeof each === "string" ? { value: each } : each)) };
    const written = await this.send("POST", `/topics/${encodeURIComponent(topic)}/records`, { body });
    return written.records.map((each) => each.offset);
  }

  /** The records of a partition: `partition`, `offset`, `limit`, `isolation`, and `wait` for so many. */
  async read(topic, query = {}) {
    return (await this.send("GET", `/topics/${encodeURIComponent(topic)}/records`, { query })).records;
  }

  /** The values of the committed records of partition 0. */
  async values(topic, query = {}) {
    return (await this.read(topic, { isolation: "read_committed", ...query })).map((each) => each.value);
  }

  /** Let requests fail: filters, a trigger, and one effect. */
  async fault(fields) {
    return new Handle(this, "faults", await this.send("POST", "/faults", { body: { ...fields, scope: this.scope } }));
  }

  /** Hold requests, their answers, or a point inside the broker. */
  async hold(fields) {
    return new Handle(this, "holds", await this.send("POST", "/holds", { body: { ...fields, scope: this.scope } }));
  }

  /** Wait until a group is as `wanted` says: `wait` (a state), `members`, `topic`, `partition`, `member`, `offset`, `lag`. */
  waitGroup(group, wanted = {}) {
    return this.send("GET", `/groups/${encodeURIComponent(group)}`, { query: { timeout: TIMEOUT, ...wanted } });
  }

  /** Wait for a state of a transactional id, such as `complete_commit`. */
  waitTransaction(id, state) {
    return this.send("GET", `/transactions/${encodeURIComponent(id)}`, { query: { wait: state, timeout: TIMEOUT } });
  }

  /** Let something happen, such as `expire_member`. */
  event(name, fields = {}) {
    return this.send("POST", `/events/${name}`, { body: fields });
  }

  /** The last requests of clients that match the filters; with `wait`, when there are so many. */
  async requests(filters = {}) {
    return (await this.send("GET", "/requests", { query: filters })).requests;
  }

  /** A request to the control port that has no method here. Returns the value of the answer. */
  async send(method, path, { body, query = {} } = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const headers = { "Content-Type": "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const response = await fetch(`http://${this.control}${path}?${new URLSearchParams(given)}`, {
      method,
      headers,
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    const value = text ? JSON.parse(text) : undefined;
    if (!response.ok) throw new ControlError(response.status, value ?? {});
    return value;
  }
}

/** A fault or a hold. */
export class Handle {
  constructor(broker, kind, view) {
    this.broker = broker;
    this.id = view.id;
    this.path = `/${kind}/${view.id}`;
  }

  /** All fields, as they are now. */
  state() {
    return this.broker.send("GET", this.path);
  }

  /** How many requests it has hit, or held. */
  async hits() {
    return (await this.state()).hits;
  }

  /** Wait until a fault has so many hits, or a hold holds so many. */
  wait(count = 1, timeout = TIMEOUT) {
    return this.broker.send("GET", this.path, { query: { wait: count, timeout } });
  }

  /** Let the first ones go that a hold holds; without `count` all, and end it. */
  release(count) {
    return this.broker.send("POST", `${this.path}/release`, { body: { count } });
  }

  /** End it. */
  remove() {
    return this.broker.send("DELETE", this.path);
  }
}
