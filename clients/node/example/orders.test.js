/** Tests of an application that uses KafkaJS. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Kafka, Partitioners, logLevel } from "kafkajs";
import { Broker } from "../kohort.js";

let broker;
before(async () => {
  broker = await Broker.start();
});
after(() => broker.stop());

const client = (clientId) => new Kafka({ clientId, brokers: [broker.bootstrap], logLevel: logLevel.NOTHING });

/** The application: it writes an order. */
async function publish(topic, order, settings = {}) {
  const producer = client("shop").producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings });
  await producer.connect();
  await producer.send({ topic, messages: [{ value: order }] });
  await producer.disconnect();
}

/** The application: it reads orders in a group, and commits each. */
async function work(topic, group, count) {
  const consumer = client("worker-1").consumer({ groupId: group, heartbeatInterval: 100 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const orders = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        orders.push(message.value.toString());
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }]);
        if (orders.length === count) resolve();
      },
    });
  });
  await consumer.disconnect();
  return orders;
}

test("an order is written once", async () => {
  const topic = await broker.topic("orders");
  const lost = await broker.fault({ api: "Produce", topic, disconnect: "after" });
  await publish(topic, "order 1", { idempotent: true });
  assert.equal(await lost.hits(), 1);
  assert.deepEqual(await broker.values(topic), ["order 1"]);
});

test("without idempotence it is written twice", async () => {
  const topic = await broker.topic("orders-again");
  await broker.fault({ api: "Produce", topic, disconnect: "after" });
  await publish(topic, "order 1");
  assert.deepEqual(await broker.values(topic), ["order 1", "order 1"]);
});

test("orders are committed", async () => {
  const topic = await broker.topic("work");
  const group = broker.unique("workers");
  await broker.write(topic, "order 1", { key: "k", value: "order 2" });
  const hold = await broker.hold({ api: "OffsetCommit", group });
  const working = work(topic, group, 2);
  await hold.wait(1);
  assert.equal((await broker.waitGroup(group, { wait: "stable", members: 1 })).members[0].client_id, "worker-1");
  await hold.release();
  await broker.waitGroup(group, { topic, offset: 2 });
  assert.deepEqual(await working, ["order 1", "order 2"]);
  assert.equal((await broker.requests({ api: "OffsetCommit", group })).length, 2);
});

test("a misspelled field is an error", async () => {
  await assert.rejects(broker.fault({ api: "Produce", eror: 5 }), /there is no field 'eror'; did you mean error\?/);
});
