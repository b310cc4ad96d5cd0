// What Azure's own tests of @azure/service-bus ask of a service, told again: npm does not have those
// tests. Each scenario bears the file and the title of its source. Prints one JSON object a scenario:
// {"scenario", "ok", "detail"}.
//
//   ADMINISTRATION=CONNECTION_STRING NODE_EXTRA_CA_CERTS=ca.pem node azure.mjs CONNECTION_STRING PREFIX [SCENARIO...]
//
// Each scenario makes an entity of its own, whose name begins with the prefix.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import Long from "long";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const [connectionString, prefix, ...wanted] = process.argv.slice(2);
const PATIENCE_MS = 120_000;
const SILENCE_MS = 1000;
const SHORT_LOCK_MS = 5000;
const DELIVERIES = 10;
const SESSION = "my-session";
const AT_ONCE = 6;

const administration = new ServiceBusAdministrationClient(process.env.ADMINISTRATION);

// Where a scenario works: an entity, its client, and a receiver of each kind.
class Place {
  static async made(client, number, { sessions = false, short = false, topic = false }) {
    const name = `${prefix}-${number}`;
    const properties = {
      requiresSession: sessions, lockDuration: short ? "PT5S" : "PT30S", maxDeliveryCount: DELIVERIES,
    };
    if (topic) {
      await administration.createTopic(name);
      await administration.createSubscription(name, "sub", properties);
    } else await administration.createQueue(name, properties);
    return new Place(client, sessions, topic ? [name, "sub"] : [name]);
  }

  constructor(client, sessions, path) {
    this.client = client;
    this.sessions = sessions;
    this.path = path;
    this.sender = client.createSender(path[0]);
  }

  receiver(options = {}) {
    return this.sessions
      ? this.client.acceptSession(...this.path, SESSION, options)
      : this.client.createReceiver(...this.path, options);
  }

  next(options = {}) {
    return this.client.acceptNextSession(...this.path, options);
  }

  dead(options = {}) {
    return this.client.createReceiver(...this.path, { subQueueType: "deadLetter", ...options });
  }

  sample() {
    const tag = Math.random().toString();
    const message = {
      body: `body ${tag}`, messageId: `id ${tag}`, partitionKey: "a key", contentType: `type ${tag}`,
      correlationId: `correlation ${tag}`, timeToLive: 86_400_000, subject: `subject ${tag}`,
      to: `to ${tag}`, replyTo: `reply ${tag}`, scheduledEnqueueTimeUtc: new Date(),
      applicationProperties: { one: 1, two: "two", three: true, four: Date() },
    };
    const inSession = { partitionKey: SESSION, sessionId: SESSION, replyToSessionId: "another" };
    return this.sessions ? { ...message, ...inSession } : message;
  }

  // Fields for an annotated message.
  annotations() {
    return this.sessions ? { properties: { groupId: SESSION } } : {};
  }

  async send() {
    const message = this.sample();
    await this.sender.sendMessages(message);
    return message;
  }

  async sendAndReceive(receiver) {
    const sent = await this.send();
    const message = await one(receiver);
    assert.deepEqual([message.body, message.messageId], [sent.body, sent.messageId]);
    assert.equal(message.deliveryCount, 0);
    return message;
  }
}

async function some(receiver, count) {
  const messages = [];
  const end = Date.now() + PATIENCE_MS;
  while (messages.length < count && Date.now() < end) {
    const wait = { maxWaitTimeInMs: end - Date.now() };
    messages.push(...(await receiver.receiveMessages(count - messages.length, wait)));
  }
  assert.equal(messages.length, count, "messages received");
  return messages;
}

const one = async (receiver) => (await some(receiver, 1))[0];

async function expectSilence(receiver) {
  const found = await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE_MS });
  assert.deepEqual(found.map((each) => each.body), []);
}

async function expectStored(receiver, count) {
  const found = await receiver.peekMessages(count + 1, { fromSequenceNumber: Long.ZERO });
  assert.equal(found.length, count, "messages stored");
}

async function expectError(code, action) {
  const error = await action().then(() => assert.fail(`no error ${code}`), (error) => error);
  assert.equal(error.code, code, error.message);
}

async function until(condition, what) {
  const end = Date.now() + PATIENCE_MS;
  while (!condition()) {
    assert.ok(Date.now() < end, `not within ${PATIENCE_MS} ms: ${what}`);
    await sleep(20);
  }
}

async function deferred(receiver, sequenceNumber, count) {
  const [message] = await receiver.receiveDeferredMessages(sequenceNumber);
  assert.ok(message, "the deferred message");
  assert.deepEqual([message.state, message.deliveryCount], ["deferred", count]);
  return message;
}

// Sends, receives, defers, and receives by number.
async function deferredOnce(at, receiver) {
  const message = await at.sendAndReceive(receiver);
  await receiver.deferMessage(message);
  return deferred(receiver, message.sequenceNumber, 1);
}

async function completeDeferred(receiver, sequenceNumber, count) {
  await expectStored(receiver, 1);
  await receiver.completeMessage(await deferred(receiver, sequenceNumber, count));
  await expectStored(receiver, 0);
}

function assertArrived(message, sent) {
  const names = ["body", "messageId", "contentType", "correlationId", "subject", "timeToLive", "to"];
  for (const name of [...names, "replyTo", "sessionId", "replyToSessionId", "partitionKey"])
    assert.deepEqual(message[name], sent[name], name);
  assert.deepEqual({ ...message.applicationProperties }, sent.applicationProperties);
}

const scenarios = {};

function told(title, body, options = {}) {
  scenarios[title] = async (client, number) => body(await Place.made(client, number, options));
}

// Of a queue, and of one that requires sessions.
function both(title, body, options = {}) {
  told(title, body, options);
  told(`${title} - sessions`, body, { ...options, sessions: true });
}

both("deferredMessage: Empty array as input throws no error", async (at) => {
  const receiver = await at.receiver();
  assert.deepEqual(await receiver.receiveDeferredMessages([]), []);
});

both("deferredMessage: Abandoning a deferred message puts it back to the deferred queue.", async (at) => {
  const receiver = await at.receiver();
  const message = await deferredOnce(at, receiver);
  await receiver.abandonMessage(message);
  await completeDeferred(receiver, message.sequenceNumber, 2);
});

both("deferredMessage: Deferring a deferred message puts it back to the deferred queue.", async (at) => {
  const receiver = await at.receiver();
  const message = await deferredOnce(at, receiver);
  await receiver.deferMessage(message);
  await completeDeferred(receiver, message.sequenceNumber, 2);
});

both("deferredMessage: Deadlettering a deferred message moves it to dead letter queue.", async (at) => {
  const receiver = await at.receiver();
  const message = await deferredOnce(at, receiver);
  await receiver.deadLetterMessage(message);
  await expectStored(receiver, 0);
  const dead = at.dead();
  const found = await one(dead);
  assert.deepEqual([found.body, found.deliveryCount], [message.body, 1]);
  await receiver.completeMessage(found);
  await expectStored(dead, 0);
});

told("deferredMessage: renewLock on a deferred message", async (at) => {
  const receiver = await at.receiver();
  const message = await deferredOnce(at, receiver);
  const before = message.lockedUntilUtc;
  await sleep(1000);
  assert.ok((await receiver.renewMessageLock(message)) > before);
  await receiver.deferMessage(message);
  await completeDeferred(receiver, message.sequenceNumber, 2);
});

const CUSTOM = { customProperty: "set when it was settled" };

for (const how of ["deferred", "typical received"]) {
  const message = async (at, receiver) =>
    how === "deferred" ? deferredOnce(at, receiver) : at.sendAndReceive(receiver);

  both(`propsToModify: dead lettering a ${how} message`, async (at) => {
    const receiver = await at.receiver();
    await receiver.deadLetterMessage(await message(at, receiver), {
      deadLetterErrorDescription: "the description", deadLetterReason: "the reason", ...CUSTOM,
    });
    const found = await one(at.dead({ receiveMode: "receiveAndDelete" }));
    assert.equal(found.deadLetterReason, "the reason");
    assert.equal(found.deadLetterErrorDescription, "the description");
    assert.equal(found.applicationProperties.customProperty, CUSTOM.customProperty);
  });

  both(`propsToModify: abandoning a ${how} message`, async (at) => {
    const receiver = await at.receiver();
    const given = await message(at, receiver);
    await receiver.abandonMessage(given, CUSTOM);
    const back = how === "deferred"
      ? await deferred(receiver, given.sequenceNumber, 2)
      : await one(receiver);
    assert.equal(back.applicationProperties.customProperty, CUSTOM.customProperty);
  });

  both(`propsToModify: deferring a ${how} message`, async (at) => {
    const receiver = await at.receiver();
    const given = await message(at, receiver);
    await receiver.deferMessage(given, CUSTOM);
    const back = await deferred(receiver, given.sequenceNumber, how === "deferred" ? 2 : 1);
    assert.equal(back.applicationProperties.customProperty, CUSTOM.customProperty);
  });
}

both("batchReceiver: complete() removes message", async (at) => {
  const receiver = await at.receiver();
  await receiver.completeMessage(await at.sendAndReceive(receiver));
  await expectStored(receiver, 0);
});

both("batchReceiver: abandon() retains message with incremented deliveryCount", async (at) => {
  const receiver = await at.receiver();
  const message = await at.sendAndReceive(receiver);
  await receiver.abandonMessage(message);
  await expectStored(receiver, 1);
  const again = await one(receiver);
  assert.deepEqual([again.messageId, again.deliveryCount], [message.messageId, 1]);
  await receiver.completeMessage(again);
  await expectStored(receiver, 0);
});

both("batchReceiver: Multiple abandons until maxDeliveryCount.", async (at) => {
  const receiver = await at.receiver();
  const { messageId } = await at.send();
  for (let count = 0; count < DELIVERIES; count++) {
    const message = await one(receiver);
    assert.deepEqual([message.messageId, message.deliveryCount], [messageId, count]);
    await receiver.abandonMessage(message);
  }
  const dead = at.dead();
  const found = await one(dead);
  assert.equal(found.messageId, messageId);
  await expectStored(receiver, 0);
  await receiver.completeMessage(found);
  await expectStored(dead, 0);
});

both("batchReceiver: deadLetter() moves message to deadletter queue", async (at) => {
  const receiver = await at.receiver();
  const message = await at.sendAndReceive(receiver);
  await receiver.deadLetterMessage(message);
  await expectStored(receiver, 0);
  const dead = at.dead();
  const found = await one(dead);
  assert.deepEqual([found.messageId, found.deliveryCount], [message.messageId, 0]);
  await receiver.completeMessage(found);
  await expectStored(dead, 0);
});

both("batchReceiver: cannot settle peeked message", async (at) => {
  const receiver = await at.receiver();
  await at.send();
  const [peeked] = await receiver.peekMessages(1, { fromSequenceNumber: Long.ZERO });
  assert.equal(peeked.lockToken, undefined);
  for (const settle of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage"])
    await assert.rejects(receiver[settle](peeked), /peeked message/);
  await expectStored(receiver, 1);
});

// Sends and dead-letters a message, and receives it from the dead-letter queue.
async function deadLettered(at, receiver, dead) {
  await receiver.deadLetterMessage(await at.sendAndReceive(receiver));
  const found = await one(dead);
  assert.equal(found.deliveryCount, 0);
  return found;
}

both("batchReceiver: Throws error when dead lettering a dead lettered message", async (at) => {
  const [receiver, dead] = [await at.receiver(), at.dead()];
  const message = await deadLettered(at, receiver, dead);
  await expectError("GeneralError", () => receiver.deadLetterMessage(message));
  const again = await one(dead);
  assert.deepEqual([again.messageId, again.deliveryCount], [message.messageId, 0]);
  await receiver.completeMessage(again);
  await expectStored(dead, 0);
});

both("batchReceiver: Abandon a message received from dead letter queue", async (at) => {
  const [receiver, dead] = [await at.receiver(), at.dead()];
  const message = await deadLettered(at, receiver, dead);
  await receiver.abandonMessage(message);
  const again = await one(dead);
  assert.deepEqual([again.messageId, again.deliveryCount], [message.messageId, 0]);
  await receiver.completeMessage(again);
  await expectStored(dead, 0);
});

told("batchReceiver: Defer a message received from dead letter queue", async (at) => {
  const [receiver, dead] = [await at.receiver(), at.dead()];
  const message = await deadLettered(at, receiver, dead);
  await receiver.deferMessage(message);
  const [found] = await dead.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(found.messageId, message.messageId);
  await dead.completeMessage(found);
  await expectStored(receiver, 0);
  await expectStored(dead, 0);
});

both("batchReceiver: Multiple sequential receiveMessages calls", async (at) => {
  const receiver = await at.receiver();
  const batch = await at.sender.createMessageBatch();
  const sent = [at.sample(), at.sample()];
  for (const message of sent) assert.ok(batch.tryAddMessage(message));
  await at.sender.sendMessages(batch);
  const found = [await one(receiver), await one(receiver)];
  assert.deepEqual(found.map((each) => each.messageId).sort(), sent.map((each) => each.messageId).sort());
  for (const message of found) await receiver.completeMessage(message);
});

both("batchReceiver: No settlement of the message is retained with incremented deliveryCount", async (at) => {
  let receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const { messageId } = await at.sendAndReceive(receiver);
  await expectStored(receiver, 1);
  if (at.sessions) {
    await sleep(SHORT_LOCK_MS + 500);
    receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  }
  const again = await one(receiver);
  assert.deepEqual([again.messageId, again.deliveryCount], [messageId, 1]);
}, { short: true });

both("batchReceiver: Receive n messages but queue only has m messages, where m < n", async (at) => {
  const receiver = await at.receiver();
  await at.send();
  const found = await receiver.receiveMessages(2, { maxWaitTimeInMs: PATIENCE_MS });
  assert.equal(found.length, 1);
  await receiver.completeMessage(found[0]);
  await expectStored(receiver, 0);
});

// As the client does when it hears nothing from the service.
const disconnect = (receiver) => receiver._context.connection._connection.idle();

told("batchReceiver: can receive and settle messages after a disconnect", async (at) => {
  const receiver = await at.receiver();
  await receiver.completeMessage(await at.sendAndReceive(receiver));
  disconnect(receiver);
  await receiver.completeMessage(await at.sendAndReceive(receiver));
  await expectStored(receiver, 0);
});

told("managementClient: can receive and settle messages after a disconnect", async (at) => {
  const receiver = await at.receiver();
  await at.sender.sendMessages([at.sample(), at.sample()]);
  const [first] = await receiver.peekMessages(1);
  disconnect(receiver);
  const [second] = await receiver.peekMessages(1);
  assert.ok(second.sequenceNumber.gt(first.sequenceNumber));
});

told("managementClient: schedule can receive and settle messages after a disconnect", async (at) => {
  const receiver = await at.receiver();
  const past = new Date("2020-04-25T12:00:00Z");
  assert.equal((await at.sender.scheduleMessages(at.sample(), past)).length, 1);
  disconnect(receiver);
  assert.equal((await at.sender.scheduleMessages(at.sample(), past)).length, 1);
  await some(receiver, 2);
});

both("receiveAndDeleteMode: No settlement of the message removes message", async (at) => {
  const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
  const message = await at.sendAndReceive(receiver);
  assert.equal(message.lockToken, undefined);
  await expectStored(receiver, 0);
});

for (const autoCompleteMessages of [true, false]) {
  const word = autoCompleteMessages ? "enabled" : "disabled";
  both(`receiveAndDeleteMode: With auto-complete ${word}, no settlement of the message removes message`, async (at) => {
    const { messageId } = await at.send();
    const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
    const [found, errors] = [[], []];
    receiver.subscribe(
      { processMessage: async (each) => found.push(each), processError: async (each) => errors.push(each) },
      { autoCompleteMessages },
    );
    await until(() => found.length > 0, "a message");
    assert.deepEqual([found.map((each) => each.messageId), errors], [[messageId], []]);
    await expectStored(receiver, 0);
  });
}

both("receiveAndDeleteMode: Receive Deferred messages in ReceiveAndDelete mode", async (at) => {
  const locking = await at.receiver();
  const message = await at.sendAndReceive(locking);
  await locking.deferMessage(message);
  await locking.close();
  const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
  const found = await deferred(receiver, message.sequenceNumber, 1);
  await expectStored(receiver, 0);
  for (const settle of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage"])
    await assert.rejects(receiver[settle](found), /receiveAndDelete/);
});

const closeLink = (receiver, message) =>
  receiver._context.messageReceivers[message.delivery.link.name].close();

told("backupMessageSettlement: complete() removes message", async (at) => {
  const receiver = at.receiver();
  const message = await at.sendAndReceive(receiver);
  await closeLink(receiver, message);
  await receiver.completeMessage(message);
  await expectStored(at.receiver(), 0);
});

told("backupMessageSettlement: abandon() retains message with incremented deliveryCount", async (at) => {
  const receiver = at.receiver();
  const message = await at.sendAndReceive(receiver);
  await closeLink(receiver, message);
  await receiver.abandonMessage(message);
  const other = at.receiver();
  await expectStored(other, 1);
  const again = await one(other);
  assert.equal(again.deliveryCount, 1);
  await other.completeMessage(again);
});

told("backupMessageSettlement: defer() moves message to deferred queue", async (at) => {
  const receiver = at.receiver();
  const message = await at.sendAndReceive(receiver);
  await closeLink(receiver, message);
  await receiver.deferMessage(message);
  await completeDeferred(at.receiver(), message.sequenceNumber, 1);
});

told("backupMessageSettlement: deadLetter() moves message to deadletter queue", async (at) => {
  const receiver = at.receiver();
  const message = await at.sendAndReceive(receiver);
  await closeLink(receiver, message);
  await receiver.deadLetterMessage(message);
  const found = await one(at.dead());
  assert.equal(found.messageId, message.messageId);
  await at.receiver().completeMessage(found);
  await expectStored(at.dead(), 0);
});

told("backupMessageSettlement: Lock renewal for a message", async (at) => {
  const receiver = at.receiver();
  const message = await at.sendAndReceive(receiver);
  const before = message.lockedUntilUtc;
  await closeLink(receiver, message);
  await sleep(1000);
  assert.ok((await receiver.renewMessageLock(message)) > before);
  await receiver.completeMessage(message);
  await expectStored(at.receiver(), 0);
});

both("sendAndSchedule: Send single message", async (at) => {
  const receiver = await at.receiver();
  const sent = await at.send();
  const message = await one(receiver);
  assert.equal(message.deliveryCount, 0);
  assertArrived(message, sent);
  await receiver.completeMessage(message);
  await expectStored(receiver, 0);
});

both("sendAndSchedule: Send Array of messages", async (at) => {
  const receiver = await at.receiver();
  const sent = [at.sample(), at.sample()];
  await at.sender.sendMessages(sent);
  for (const message of await some(receiver, 2)) {
    assertArrived(message, sent.find((each) => each.messageId === message.messageId));
    await receiver.completeMessage(message);
  }
  await expectStored(receiver, 0);
});

both("sendAndSchedule: Schedule with empty input does not throw error", async (at) => {
  assert.deepEqual(await at.sender.scheduleMessages([], new Date()), []);
  await at.sender.cancelScheduledMessages([]);
});

both("sendAndSchedule: Schedule multiple messages", async (at) => {
  const due = new Date(Date.now() + 4000);
  const sent = [at.sample(), at.sample()];
  await at.sender.scheduleMessages(sent, due);
  const receiver = await at.receiver();
  for (const message of await some(receiver, 2)) {
    assert.ok(message.enqueuedTimeUtc >= due, "enqueued when due");
    assert.ok(Date.now() >= due.getTime(), "early");
    assert.ok(sent.some((each) => each.messageId === message.messageId));
    await receiver.completeMessage(message);
  }
  await expectStored(receiver, 0);
});

both("sendAndSchedule: Cancel multiple Scheduled messages", async (at) => {
  const due = new Date(Date.now() + 6000);
  const numbers = await at.sender.scheduleMessages([at.sample(), at.sample()], due);
  await at.sender.cancelScheduledMessages(numbers);
  await sleep(Math.max(due.getTime() - Date.now(), 0));
  await expectSilence(await at.receiver());
});

told("sessionsTests: acceptNextSession() No sessionId on empty queue throws OperationTimeoutError", async (at) => {
  const impatient = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 2000 } });
  await expectError("ServiceTimeout", () => impatient.acceptNextSession(at.path[0]));
  await impatient.close();
}, { sessions: true });

told("sessionsTests: Batch Receiver: no messages received for invalid sessionId", async (at) => {
  const { messageId } = await at.send();
  const wrong = await at.client.acceptSession(at.path[0], `non-${SESSION}`);
  await expectSilence(wrong);
  await wrong.close();
  const receiver = await at.next();
  const message = await one(receiver);
  assert.equal(message.messageId, messageId);
  await receiver.completeMessage(message);
  await expectStored(receiver, 0);
}, { sessions: true });

told("sessionsTests: Testing getState and setState", async (at) => {
  let receiver = await at.receiver();
  const message = await at.sendAndReceive(receiver);
  assert.ok(!(await receiver.getSessionState()));
  await receiver.setSessionState("new_state");
  assert.equal(await receiver.getSessionState(), "new_state");
  await receiver.close();
  receiver = await at.next();
  const again = await one(receiver);
  assert.deepEqual([again.messageId, again.sessionId], [message.messageId, SESSION]);
  assert.equal(await receiver.getSessionState(), "new_state");
  await receiver.setSessionState("");
  await receiver.completeMessage(again);
  await expectStored(receiver, 0);
}, { sessions: true });

told("sessionsTests: calls processError and closes the link", async (at) => {
  const receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 10_000 });
  const errors = [];
  await at.send();
  receiver.subscribe({
    processMessage: async () => disconnect(receiver),
    processError: async ({ error }) => errors.push(error.code),
  }, { autoCompleteMessages: false });
  await until(() => errors.includes("SessionLockLost"), "the loss of the session's lock");
  await at.send();
  const again = await at.receiver();
  const found = [];
  again.subscribe({
    processMessage: async (message) => found.push(message),
    processError: async () => {},
  });
  await until(() => found.length === 2, "both messages");
  await again.close();
}, { sessions: true });

for (const topic of [false, true]) {
  const where = topic ? "subscription" : "queue";
  for (const how of ["acceptSession(sessionId)", "acceptNextSession()"]) {
    told(`sessionsRequiredCleanEntityTests: Peek session of a ${where}: ${how}`, async (at) => {
      const sent = await at.send();
      const receiver = how.includes("Next") ? await at.next() : await at.receiver();
      await receiver.abandonMessage(await one(receiver));
      const [peeked] = await receiver.peekMessages(1);
      assert.deepEqual([peeked.messageId, peeked.sessionId], [sent.messageId, SESSION]);
      const message = await one(receiver);
      assert.deepEqual([message.messageId, message.sessionId], [sent.messageId, SESSION]);
      await receiver.completeMessage(message);
    }, { sessions: true, topic });
  }
}

told("sessionsRequiredCleanEntityTests: complete() removes message from random session", async (at) => {
  const ids = ["one", "two"];
  for (const sessionId of ids) await at.sender.sendMessages({ body: sessionId, sessionId });
  const found = [];
  for (let turn = 0; turn < 2; turn++) {
    const receiver = await at.next();
    const messages = await receiver.receiveMessages(2, { maxWaitTimeInMs: PATIENCE_MS });
    assert.deepEqual(messages.map((each) => each.sessionId), [receiver.sessionId]);
    await receiver.completeMessage(messages[0]);
    await expectStored(receiver, 0);
    found.push(receiver.sessionId);
    await receiver.close();
  }
  assert.deepEqual(found.sort(), ids);
}, { sessions: true });

told("renewLockSessions: Batch Receiver: renewLock() resets lock duration each time", async (at) => {
  const receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const message = await at.sendAndReceive(receiver);
  const before = receiver.sessionLockedUntilUtc;
  await sleep(1000);
  await receiver.renewSessionLock();
  assert.ok(receiver.sessionLockedUntilUtc - before >= 900);
  await receiver.completeMessage(message);
}, { sessions: true });

told("renewLockSessions: Streaming Receiver: complete() after lock expiry with auto-renewal disabled throws error", async (at) => {
  const receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const [found, errors] = [[], []];
  await at.send();
  receiver.subscribe({
    processMessage: async (message) => found.push(message),
    processError: async ({ error }) => errors.push(error.code),
  }, { autoCompleteMessages: false });
  await until(() => errors.includes("SessionLockLost"), "the loss of the session's lock");
  assert.equal(found.length, 1);
  await expectError("SessionLockLost", () => receiver.completeMessage(found[0]));
}, { sessions: true, short: true });

told("renewLockSessions: Streaming Receiver: lock will not expire until configured time", async (at) => {
  const receiver = await at.receiver({ maxAutoLockRenewalDurationInMs: 2 * SHORT_LOCK_MS });
  const [found, errors] = [[], []];
  await at.send();
  receiver.subscribe({
    processMessage: async (message) => found.push(message),
    processError: async ({ error }) => errors.push(error.code),
  }, { autoCompleteMessages: false });
  await until(() => found.length > 0, "the message");
  await sleep(SHORT_LOCK_MS + 2000);
  await receiver.completeMessage(found[0]);
  assert.deepEqual(errors, []);
}, { sessions: true, short: true });

for (const topic of [false, true]) {
  const where = topic ? "subscription" : "queue";
  both(`peekMessagesOptions: peek messages of a ${where} without their bodies`, async (at) => {
    await at.send();
    const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
    let peeked = [];
    for (const end = Date.now() + PATIENCE_MS; peeked.length === 0 && Date.now() < end; )
      peeked = await receiver.peekMessages(1, { omitMessageBody: true });
    assert.deepEqual(peeked.map((each) => each.body), [undefined]);
    assert.ok((await one(receiver)).body);
  }, { topic });
}

const BODIES = {
  value: [[1, 2, 3], 1, 1.5, "hello", { hello: "world" }],
  sequence: [[[1], [2], [3]], [1, 2, 3]],
  data: [1, 1.5, "hello", { hello: "world" }, Buffer.from("hello"), [1, 2, 3]],
};

for (const [bodyType, bodies] of Object.entries(BODIES)) {
  both(`amqpAnnotatedMessage: ${bodyType}: received and sent again as they are`, async (at) => {
    const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
    for (const body of bodies) {
      await at.sender.sendMessages({ body, bodyType, ...at.annotations() });
      const first = await one(receiver);
      await at.sender.sendMessages(first);
      for (const message of [first, await one(receiver)]) {
        assert.equal(message._rawAmqpMessage.bodyType, bodyType);
        assert.deepEqual(message.body, body);
      }
    }
  });
}

both("amqpAnnotatedMessage: send, receive, verify props, and complete()", async (at) => {
  const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
  const sent = {
    body: "annotated", bodyType: "data",
    header: { deliveryCount: 10, durable: false, firstAcquirer: false, priority: 20, timeToLive: 100_000 },
    applicationProperties: { one: 1, two: "two", three: true, four: Date() },
    footer: { foot: "note" },
    messageAnnotations: { mine: "annotation" },
    properties: {
      contentEncoding: "application/json; charset=utf-8", correlationId: "7", messageId: "8",
      ...at.annotations().properties,
    },
  };
  await at.sender.sendMessages(sent);
  const { body, _rawAmqpMessage: raw } = await one(receiver);
  assert.deepEqual([body, raw.bodyType], [sent.body, sent.bodyType]);
  assert.equal(raw.messageAnnotations.mine, "annotation");
  assert.deepEqual({ ...raw.applicationProperties }, sent.applicationProperties);
  assert.deepEqual({ ...raw.footer }, sent.footer);
  assert.deepEqual({ ...raw.header, deliveryCount: 10 }, sent.header);
  const { creationTime, absoluteExpiryTime, ...properties } = raw.properties;
  for (const [name, value] of Object.entries(sent.properties)) assert.equal(properties[name], value, name);
  await expectStored(receiver, 0);
});

both("amqpAnnotatedMessage: scheduleMessages", async (at) => {
  const receiver = await at.receiver({ receiveMode: "receiveAndDelete" });
  await at.sender.scheduleMessages({ body: "hello", bodyType: "value", ...at.annotations() }, new Date());
  const { body, _rawAmqpMessage: raw } = await one(receiver);
  assert.deepEqual([body, raw.bodyType], ["hello", "value"]);
});

told("ruleManager: list rules by page", async (at) => {
  const manager = at.client.createRuleManager(...at.path);
  await manager.createRule("sqlRule", { sqlExpression: "price > 10" });
  const action = { sqlExpression: "SET sys.CorrelationId = 'new'" };
  await manager.createRule("correlationRule", { subject: "label", to: "to" }, action);
  const pages = [];
  for await (const page of manager.listRules().byPage({ maxPageSize: 1 }))
    pages.push(page.map((each) => each.name));
  assert.deepEqual(pages.slice(0, 3), [["$Default"], ["correlationRule"], ["sqlRule"]]);
}, { topic: true });

const ORDERS = [["blue", 5], ["red", 10], ["yellow", 5], ["blue", 10], ["red", 5], ["yellow", 10]];

for (const [title, filter, color] of [
  ["created true filter works", { sqlExpression: "1=1" }, undefined],
  ["created correlation filter on the messages works", { subject: "red" }, "red"],
  ["created correlation filter with action works", { applicationProperties: { color: "blue" } }, "blue"],
  ["created sql filter on the message property works", { sqlExpression: "sys.label ='yellow'" }, "yellow"],
  ["created sql filter with action works", { sqlExpression: "Color = 'blue'" }, "blue"],
]) {
  told(`ruleManager: ${title}`, async (at) => {
    const manager = at.client.createRuleManager(...at.path);
    await manager.deleteRule("$Default");
    const action = title.includes("action") ? { sqlExpression: "SET priority = 'high'" } : undefined;
    await manager.createRule("rule", filter, action);
    await at.sender.sendMessages(ORDERS.map(([color, quantity]) => ({
      body: "order", subject: color, applicationProperties: { color, quantity, priority: "low" },
    })));
    const receiver = at.receiver();
    const expected = ORDERS.filter(([each]) => !color || each === color);
    const found = [];
    for await (const message of receiver.getMessageIterator()) {
      const { color, quantity, priority } = message.applicationProperties;
      assert.equal(priority, action ? "high" : "low");
      found.push([color, quantity]);
      await receiver.completeMessage(message);
      if (found.length === expected.length) break;
    }
    assert.deepEqual(found, expected);
    await expectSilence(receiver);
  }, { topic: true });
}

async function run(name, number) {
  const client = new ServiceBusClient(connectionString, { retryOptions: { timeoutInMs: 60_000 } });
  const result = { scenario: name, ok: true, detail: "" };
  const began = Date.now();
  try {
    const late = sleep(PATIENCE_MS + 30_000, undefined, { ref: false });
    await Promise.race([scenarios[name](client, number), late.then(() => assert.fail("no end"))]);
  } catch (error) {
    result.ok = false;
    result.detail = `${error.code ?? error.name}: ${error.message}\n${error.stack}`;
  }
  result.seconds = (Date.now() - began) / 1000;
  console.log(JSON.stringify(result));
  await Promise.race([client.close(), sleep(5000)]).catch(() => {});
}

const names = Object.keys(scenarios);
const queue = (wanted.length > 0 ? wanted : names)[Symbol.iterator]();
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    for (const name of queue) await run(name, names.indexOf(name));
  }),
);
process.exit(0);
