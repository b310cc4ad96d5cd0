// Batch delete and purge by the preview of @azure/service-bus, against a connection string; prints
// one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   node batch_delete.mjs CONNECTION_STRING QUEUE [SCENARIO...]
//
// Each scenario has a queue of its own, QUEUE-SCENARIO; QUEUE-session requires sessions, and topic
// QUEUE-topic has the subscriptions `audit` and `other`.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const [connectionString, prefix, ...wanted] = process.argv.slice(2);

// A purge deletes what was enqueued before it: what was sent has its time some milliseconds later.
async function send(client, queue, bodies, fields = {}) {
  const sender = client.createSender(queue);
  await sender.sendMessages(bodies.map((body) => ({ body, ...fields })));
  await sender.close();
  await sleep(250);
}

async function rest(receiver) {
  const found = [];
  for (;;) {
    const messages = await receiver.receiveMessages(100, { maxWaitTimeInMs: 1000 });
    if (messages.length === 0) return found;
    for (const message of messages) {
      await receiver.completeMessage(message);
      found.push(message.body);
    }
  }
}

const scenarios = {
  // The oldest go first, as many as are asked for; then all; then none.
  async counts(client, queue) {
    await send(client, queue, ["0", "1", "2", "3", "4", "5"]);
    const receiver = client.createReceiver(queue);
    assert.equal(await receiver.deleteMessages({ maxMessageCount: 4 }), 4);
    const [first] = await receiver.peekMessages(1);
    assert.equal(first.body, "4");
    assert.equal(await receiver.purgeMessages(), 2);
    assert.equal(await receiver.purgeMessages(), 0);
    assert.deepEqual(await rest(receiver), []);
  },

  // Nothing that is younger than the time goes.
  async before(client, queue) {
    await send(client, queue, ["old", "older"]);
    const beforeEnqueueTime = new Date();
    await send(client, queue, ["new"]);
    const receiver = client.createReceiver(queue);
    assert.equal(await receiver.purgeMessages({ beforeEnqueueTime }), 2);
    assert.deepEqual(await rest(receiver), ["new"]);
  },

  // A locked message stays; so does what is in another subscription.
  async others(client, queue) {
    await send(client, queue, ["locked", "waits"]);
    const receiver = client.createReceiver(queue);
    const [locked] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 120_000 });
    assert.equal(await receiver.purgeMessages(), 1);
    await receiver.completeMessage(locked);
    const topic = `${prefix}-topic`;
    await send(client, topic, ["0", "1", "2"]);
    assert.equal(await client.createReceiver(topic, "audit").purgeMessages(), 3);
    assert.deepEqual(await rest(client.createReceiver(topic, "other")), ["0", "1", "2"]);
  },

  // A dead-letter queue.
  async dead(client, queue) {
    await send(client, queue, ["a", "b"]);
    const receiver = client.createReceiver(queue);
    for (let left = 2; left > 0; ) {
      const messages = await receiver.receiveMessages(left, { maxWaitTimeInMs: 120_000 });
      for (const message of messages) await receiver.deadLetterMessage(message);
      left -= messages.length;
    }
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    assert.equal(await dead.purgeMessages(), 2);
    assert.deepEqual(await rest(dead), []);
  },

  // The messages of the session that is held; no other's.
  async session(client, queue) {
    await send(client, queue, ["a0", "a1"], { sessionId: "a" });
    await send(client, queue, ["b0"], { sessionId: "b" });
    const held = await client.acceptSession(queue, "a");
    assert.equal(await held.deleteMessages({ maxMessageCount: 1 }), 1);
    assert.equal(await held.purgeMessages(), 1);
    await held.close();
    assert.deepEqual(await rest(await client.acceptSession(queue, "b")), ["b0"]);
  },
};

for (const name of wanted.length ? wanted : Object.keys(scenarios)) {
  const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
  let ok = true;
  let detail = "";
  try {
    await scenarios[name](client, `${prefix}-${name}`);
  } catch (error) {
    ok = false;
    detail = String(error.stack ?? error);
  }
  console.log(JSON.stringify({ scenario: name, ok, detail }));
  await client.close();
}
