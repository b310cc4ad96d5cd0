// Runs named scenarios of the unmodified @azure/service-bus against a connection string and prints
// one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   [SHARE=1/3] node scenarios.mjs CONNECTION_STRING QUEUE [SCENARIO...]
//
// SHARE=1/3 runs every third scenario, from the second one on.
// The queue must be empty, with a lock duration of 5 s and at least 10 deliveries. There is a topic
// QUEUE-topic with a subscription `rules`, a queue QUEUE-unique that detects duplicates, and a queue
// QUEUE-sessions that requires sessions; QUEUE-many does so, too, and has locks of a minute.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const [connectionString, queue, ...wanted] = process.argv.slice(2);
const LOCK_MS = 5000;
const PATIENCE_MS = 120_000;
const SILENCE_MS = 1000;
const clientOptions = { retryOptions: { maxRetries: 0, timeoutInMs: 20000 } };

async function withClient(body, text = connectionString) {
  const client = new ServiceBusClient(text, clientOptions);
  try {
    return await body(client);
  } finally {
    await client.close();
  }
}

async function receive(receiver, count = 1) {
  const messages = [];
  const end = Date.now() + PATIENCE_MS;
  while (messages.length < count && Date.now() < end) {
    const more = await receiver.receiveMessages(count - messages.length, {
      maxWaitTimeInMs: end - Date.now(),
    });
    messages.push(...more);
  }
  assert.equal(messages.length, count, "messages received");
  return messages;
}

async function expectSilence(receiver) {
  const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE_MS });
  assert.equal(messages.length, 0, "a message that should not be there");
}

async function expectError(code, action) {
  try {
    await action();
  } catch (error) {
    if (error.code !== code) throw error;
    return `${error.code}: ${error.message}`;
  }
  throw new assert.AssertionError({ message: `no error ${code}` });
}

async function expectRefusal(pattern, action) {
  try {
    await action();
  } catch (error) {
    assert.match(error.message, pattern);
    return;
  }
  throw new assert.AssertionError({ message: `not refused: ${pattern}` });
}

const inSessions = `${queue}-sessions`;

async function sendTo(client, sessionId, ...bodies) {
  const messages = bodies.map((body) => ({ body, sessionId }));
  await client.createSender(inSessions).sendMessages(messages);
}

const deadLetters = (client) =>
  client.createReceiver(queue, { subQueueType: "deadLetter" });

const scenarios = {
  async session_accept(client) {
    await sendTo(client, "one", "a", "b", "c");
    const receiver = await client.acceptSession(inSessions, "one");
    assert.equal(receiver.sessionId, "one");
    const left = receiver.sessionLockedUntilUtc - Date.now();
    assert.ok(left > 2000 && left <= LOCK_MS, `locked for ${left} ms`);
    await expectError("SessionCannotBeLocked", () => client.acceptSession(inSessions, "one"));
    const [first] = await receive(receiver);
    assert.equal(first.lockedUntilUtc.getTime(), Date.UTC(10000, 0));
    await receiver.abandonMessage(first);
    const messages = await receive(receiver, 3);
    assert.deepEqual(messages.map((m) => m.body), ["a", "b", "c"]);
    assert.deepEqual(messages.map((m) => m.deliveryCount), [1, 0, 0]);
    await receiver.completeMessage(messages[0]);
    await receiver.close();
    const again = await client.acceptSession(inSessions, "one");
    const left_over = await receive(again, 2);
    assert.deepEqual(left_over.map((m) => [m.body, m.deliveryCount]), [["b", 0], ["c", 0]]);
    for (const message of left_over) await again.completeMessage(message);
    await expectSilence(again);
    await again.close();
  },

  async session_case(client) {
    await sendTo(client, "Order-7", "a");
    await sendTo(client, "oRDER-7", "b");
    const receiver = await client.acceptSession(inSessions, "ORDER-7");
    assert.equal(receiver.sessionId, "ORDER-7");
    await expectError("SessionCannotBeLocked", () => client.acceptSession(inSessions, "order-7"));
    const peeked = await receiver.peekMessages(2);
    assert.deepEqual(peeked.map((m) => m.sessionId), ["Order-7", "oRDER-7"]);
    const messages = await receive(receiver, 2);
    assert.deepEqual(messages.map((m) => [m.body, m.sessionId]), [["a", "Order-7"], ["b", "oRDER-7"]]);
    await receiver.setSessionState("kept");
    await receiver.deferMessage(messages[0]);
    await receiver.completeMessage(messages[1]);
    await receiver.close();
    const again = await client.acceptSession(inSessions, "order-7");
    assert.equal(await again.getSessionState(), "kept");
    const [kept] = await again.receiveDeferredMessages([messages[0].sequenceNumber]);
    await again.completeMessage(kept);
    await again.setSessionState(null);
    await expectSilence(again);
    await again.close();
  },

  async session_next(client) {
    const impatient = new ServiceBusClient(connectionString, {
      retryOptions: { maxRetries: 0, timeoutInMs: 1500 },
    });
    try {
      await expectError("ServiceTimeout", () => impatient.acceptNextSession(inSessions));
    } finally {
      await impatient.close();
    }
    const waiting = client.acceptNextSession(inSessions);
    await sleep(300);
    await sendTo(client, "next", "x");
    const receiver = await waiting;
    assert.equal(receiver.sessionId, "next");
    const [message] = await receive(receiver);
    await receiver.completeMessage(message);
    await receiver.close();
  },

  async session_state(client) {
    const receiver = await client.acceptSession(inSessions, "state");
    assert.ok(!(await receiver.getSessionState()));
    await receiver.setSessionState({ step: 3 });
    assert.deepEqual(await receiver.getSessionState(), { step: 3 });
    const until = await receiver.renewSessionLock();
    assert.ok(until - Date.now() > LOCK_MS - 1500);
    await receiver.close();
    const again = await client.acceptSession(inSessions, "state");
    assert.deepEqual(await again.getSessionState(), { step: 3 });
    await again.setSessionState(null);
    assert.ok(!(await again.getSessionState()));
    await again.close();
  },

  async session_lock(client) {
    await sendTo(client, "lapses", "x");
    await sendTo(client, "kept", "y");
    const kept = await client.acceptSession(inSessions, "kept");
    const lapses = await client.acceptSession(inSessions, "lapses", {
      maxAutoLockRenewalDurationInMs: 0,
    });
    const [message] = await receive(lapses);
    const [other] = await receive(kept);
    await sleep(LOCK_MS + 1000);
    await expectError("SessionLockLost", () => lapses.completeMessage(message));
    await kept.completeMessage(other);
    await kept.close();
    const again = await client.acceptSession(inSessions, "lapses");
    const [second] = await receive(again);
    assert.equal(second.deliveryCount, 1);
    await again.completeMessage(second);
    await again.close();
  },

  async session_defer(client) {
    await sendTo(client, "defers", "a", "b");
    const receiver = await client.acceptSession(inSessions, "defers");
    const [first, second] = await receive(receiver, 2);
    await receiver.deferMessage(first);
    await receiver.deadLetterMessage(second, { deadLetterReason: "why" });
    await receiver.close();
    const again = await client.acceptSession(inSessions, "defers");
    const [deferred] = await again.receiveDeferredMessages([first.sequenceNumber]);
    assert.equal(deferred.body, "a");
    await again.completeMessage(deferred);
    await again.close();
    const dead = client.createReceiver(inSessions, { subQueueType: "deadLetter" });
    const [found] = await receive(dead);
    assert.deepEqual([found.body, found.sessionId, found.deadLetterReason], ["b", "defers", "why"]);
    await dead.completeMessage(found);
  },

  async session_subscribe(client) {
    await sendTo(client, "stream", 1, 2, 3);
    const receiver = await client.acceptSession(inSessions, "stream");
    const bodies = [];
    const { promise, resolve, reject } = deferred();
    const subscription = receiver.subscribe({
      processMessage: async (message) => {
        bodies.push(message.body);
        if (bodies.length === 3) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
    await Promise.race([promise, sleep(PATIENCE_MS).then(() => reject(new Error("too slow")))]);
    await sleep(200);
    await subscription.close();
    await receiver.close();
    assert.deepEqual(bodies, [1, 2, 3]);
  },

  // Each on an AMQP session of its own, all on one connection.
  async session_many(client) {
    const sender = client.createSender(`${queue}-many`);
    const names = Array.from({ length: 200 }, (_, number) => `many-${number}`);
    await sender.sendMessages(names.map((sessionId) => ({ body: sessionId, sessionId })));
    const accepted = names.map(() => client.acceptNextSession(`${queue}-many`));
    const receivers = await Promise.all(accepted);
    assert.deepEqual(receivers.map((each) => each.sessionId).sort(), names.sort());
    await Promise.all(
      receivers.map(async (receiver) => {
        const [message] = await receive(receiver);
        assert.equal(message.body, receiver.sessionId);
        await receiver.completeMessage(message);
      }),
    );
    await Promise.all(receivers.map((receiver) => receiver.close()));
  },

  async session_refused(client) {
    const sender = client.createSender(inSessions);
    await expectRefusal(/SessionId was not set/, () => sender.sendMessages({ body: "stray" }));
    await expectRefusal(/does not require sessions/, () => client.acceptNextSession(queue));
  },

  single_send: (client) => sendAndComplete(client, 1),

  async batch_send(client) {
    const sender = client.createSender(queue);
    const batch = await sender.createMessageBatch();
    for (let i = 0; i < 10; i++) assert.ok(batch.tryAddMessage({ body: i, subject: `s${i}` }));
    await sender.sendMessages(batch);
    const receiver = client.createReceiver(queue);
    const messages = await receive(receiver, 10);
    assert.deepEqual(messages.map((m) => m.body), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const first = messages[0].sequenceNumber.toNumber();
    messages.forEach((m, i) => assert.equal(m.sequenceNumber.toNumber(), first + i));
    await Promise.all(messages.map((m) => receiver.completeMessage(m)));
    await expectSilence(receiver);
  },

  async array_send(client) {
    await client.createSender(queue).sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);
    const receiver = client.createReceiver(queue);
    const messages = await receive(receiver, 3);
    assert.deepEqual(messages.map((m) => m.body), ["a", "b", "c"]);
    for (const message of messages) await receiver.completeMessage(message);
  },

  async subscribe(client) {
    await client.createSender(queue).sendMessages([{ body: 1 }, { body: 2 }, { body: 3 }]);
    const receiver = client.createReceiver(queue);
    const bodies = [];
    const { promise, resolve, reject } = Promise.withResolvers?.() ?? deferred();
    const subscription = receiver.subscribe(
      {
        processMessage: async (message) => {
          bodies.push(message.body);
          if (bodies.length === 3) resolve();
        },
        processError: async ({ error }) => reject(error),
      },
      { maxConcurrentCalls: 2 },
    );
    await Promise.race([promise, sleep(PATIENCE_MS).then(() => reject(new Error("too slow")))]);
    await sleep(200);
    await subscription.close();
    assert.deepEqual(bodies.sort(), [1, 2, 3]);
    await expectSilence(client.createReceiver(queue));
  },

  async abandon(client) {
    await client.createSender(queue).sendMessages({ body: "again" });
    const receiver = client.createReceiver(queue);
    const [first] = await receive(receiver);
    assert.equal(first.deliveryCount, 0);
    await receiver.abandonMessage(first);
    const [second] = await receive(receiver);
    assert.equal(second.deliveryCount, 1);
    assert.deepEqual(second.sequenceNumber, first.sequenceNumber);
    await receiver.completeMessage(second);
  },

  async abandon_with_properties(client) {
    const applicationProperties = { kept: "yes", changed: "old" };
    await client.createSender(queue).sendMessages({ body: "again", applicationProperties });
    const receiver = client.createReceiver(queue);
    const [first] = await receive(receiver);
    await receiver.abandonMessage(first, { changed: "new", added: 7 });
    const [second] = await receive(receiver);
    assert.equal(second.deliveryCount, 1);
    assert.deepEqual({ ...second.applicationProperties }, { kept: "yes", changed: "new", added: 7 });
    await receiver.completeMessage(second);
  },

  async dead_letter(client) {
    await client.createSender(queue).sendMessages({ body: "bad", applicationProperties: { a: 1 } });
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    await receiver.deadLetterMessage(message, {
      deadLetterReason: "no good",
      deadLetterErrorDescription: "it was\nreally bad ☃",
      extra: "x",
    });
    await expectSilence(receiver);
    const dead = deadLetters(client);
    const [found] = await receive(dead);
    assert.equal(found.body, "bad");
    assert.equal(found.deadLetterReason, "no good");
    assert.equal(found.deadLetterErrorDescription, "it was\nreally bad ☃");
    assert.equal(found.applicationProperties.a, 1);
    assert.equal(found.applicationProperties.extra, "x");
    await dead.completeMessage(found);
    await expectSilence(dead);
  },

  async dead_letter_without_reason(client) {
    await client.createSender(queue).sendMessages({ body: "bad" });
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    await receiver.deadLetterMessage(message);
    const dead = deadLetters(client);
    const [found] = await receive(dead);
    assert.equal(found.body, "bad");
    await dead.completeMessage(found);
  },

  async defer(client) {
    await client.createSender(queue).sendMessages({ body: "later" });
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    await receiver.deferMessage(message, { seen: "yes" });
    const unknown = message.sequenceNumber.add(1000);
    await expectError("MessageNotFound", () =>
      receiver.receiveDeferredMessages([message.sequenceNumber, unknown]),
    );
    const [first] = await receiver.receiveDeferredMessages([message.sequenceNumber]);
    assert.deepEqual([first.state, first.deliveryCount], ["deferred", 1]);
    await receiver.abandonMessage(first);
    const [deferred] = await receiver.receiveDeferredMessages([message.sequenceNumber]);
    assert.equal(deferred.body, "later");
    assert.equal(deferred.applicationProperties.seen, "yes");
    assert.equal(deferred.deliveryCount, 2);
    await receiver.completeMessage(deferred);
    await expectError("MessageNotFound", () =>
      receiver.receiveDeferredMessages([message.sequenceNumber]),
    );
    return "deferred and received by number";
  },

  async peek(client) {
    const bytes = Buffer.from([0, 255]);
    const sent = { body: "seen", applicationProperties: { bytes, text: "t", number: 2 ** 40 } };
    await client.createSender(queue).sendMessages(sent);
    const receiver = client.createReceiver(queue);
    const [peeked] = await receiver.peekMessages(1);
    assert.equal(peeked.body, "seen");
    assert.equal(peeked.state, "active");
    const [bare] = await receiver.peekMessages(1, {
      omitMessageBody: true, fromSequenceNumber: peeked.sequenceNumber,
    });
    assert.equal(bare.body, undefined);
    const { deliveryAnnotations } = bare._rawAmqpMessage;
    assert.ok(Number(deliveryAnnotations["omitted-message-body-size"]) > 0);
    assert.deepEqual(bare.applicationProperties, peeked.applicationProperties);
    const [message] = await receive(receiver);
    assert.deepEqual(peeked.applicationProperties, message.applicationProperties);
    assert.equal(message.applicationProperties.number, 2 ** 40);
    assert.ok(peeked.sequenceNumber.equals(message.sequenceNumber));
    assert.equal(message.deliveryCount, 0);
    const from = { fromSequenceNumber: message.sequenceNumber };
    const [locked] = await receiver.peekMessages(5, from);
    assert.ok(locked.sequenceNumber.equals(message.sequenceNumber));
    await receiver.deferMessage(message);
    const [deferred] = await receiver.peekMessages(5, from);
    assert.equal(deferred.state, "deferred");
    const [again] = await receiver.receiveDeferredMessages([message.sequenceNumber]);
    await receiver.completeMessage(again);
    assert.deepEqual(await receiver.peekMessages(5, from), []);
    return "peeked until it was settled";
  },

  // One of two is settled; what is left comes back, at the latest when its lock ends.
  async close_with_unsettled(client) {
    await client.createSender(queue).sendMessages([{ body: "one" }, { body: "two" }]);
    const leaving = client.createReceiver(queue);
    const [one, two] = await receive(leaving, 2);
    await leaving.completeMessage(one);
    await leaving.close();
    const receiver = client.createReceiver(queue);
    const [back] = await receive(receiver);
    assert.equal(back.body, "two");
    assert.deepEqual(back.sequenceNumber, two.sequenceNumber);
    await receiver.completeMessage(back);
    return `delivery count ${back.deliveryCount}`;
  },

  async settle_after_close(client) {
    await client.createSender(queue).sendMessages({ body: "mine" });
    const leaving = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(leaving);
    await leaving.close();
    const receiver = client.createReceiver(queue);
    await receiver.completeMessage(message);
    await sleep(LOCK_MS);
    await expectSilence(receiver);
  },

  async renew_lock(client) {
    await client.createSender(queue).sendMessages({ body: "long work" });
    const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver);
    const until = message.lockedUntilUtc.getTime();
    await sleep(LOCK_MS * 0.6);
    const renewed = (await receiver.renewMessageLock(message)).getTime();
    assert.ok(renewed >= until + LOCK_MS * 0.5, `renewed by ${renewed - until} ms`);
    await sleep(LOCK_MS * 0.7);
    await receiver.completeMessage(message);
    await expectSilence(receiver);
  },

  async lock_lost(client) {
    await client.createSender(queue).sendMessages({ body: "too slow" });
    const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver);
    await sleep(LOCK_MS + 500);
    const detail = await expectError("MessageLockLost", () => receiver.completeMessage(message));
    await expectError("MessageLockLost", () => receiver.renewMessageLock(message));
    const [again] = await receive(receiver);
    assert.equal(again.deliveryCount, 1);
    await receiver.completeMessage(again);
    return detail;
  },

  async schedule(client) {
    const sender = client.createSender(queue);
    const due = new Date(Date.now() + 3000);
    const [number] = await sender.scheduleMessages([{ body: "later" }], due);
    const receiver = client.createReceiver(queue);
    await expectSilence(receiver);
    const [message] = await receive(receiver);
    assert.ok(Date.now() >= due.getTime(), "early");
    assert.ok(message.sequenceNumber.gt(number), "a new number at activation");
    assert.equal(message.state, "scheduled");
    assert.equal(message.scheduledEnqueueTimeUtc.getTime(), due.getTime());
    assert.ok(message.enqueuedTimeUtc >= due, "enqueued when due");
    await receiver.completeMessage(message);
  },

  async schedule_past(client) {
    const sender = client.createSender(queue);
    await sender.scheduleMessages([{ body: "late" }], new Date(Date.now() - 60000));
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    await receiver.completeMessage(message);
  },

  async duplicates(client) {
    const sender = client.createSender(`${queue}-unique`);
    await sender.sendMessages({ body: "a", messageId: "7" });
    await sender.sendMessages({ body: "b", messageId: "7" });
    await sender.sendMessages([
      { body: "c", messageId: "7" },
      { body: "d", messageId: 7 },
      { body: "e", messageId: 7 },
    ]);
    const due = new Date(Date.now() + 3600000);
    const [first] = await sender.scheduleMessages({ body: "f", messageId: "later" }, due);
    const [second] = await sender.scheduleMessages({ body: "g", messageId: "later" }, due);
    assert.ok(first.eq(second));
    const receiver = client.createReceiver(`${queue}-unique`);
    const bodies = [];
    for (const message of await receive(receiver, 2)) {
      bodies.push(message.body);
      await receiver.completeMessage(message);
    }
    assert.deepEqual(bodies, ["a", "d"]);
    await expectSilence(receiver);
  },

  async schedule_cancel(client) {
    const sender = client.createSender(queue);
    const due = new Date(Date.now() + 2000);
    const numbers = await sender.scheduleMessages([{ body: "never" }, { body: "ever" }], due);
    assert.equal(numbers.length, 2);
    assert.ok(numbers[1].gt(numbers[0]));
    await sender.cancelScheduledMessages(numbers);
    await sleep(2000);
    await expectSilence(client.createReceiver(queue));
  },

  async cancel_unknown(client) {
    const { default: Long } = await import("long");
    const sender = client.createSender(queue);
    return expectError("MessageNotFound", () =>
      sender.cancelScheduledMessages(Long.fromNumber(987654321)),
    );
  },

  async scheduled_by_property(client) {
    const due = new Date(Date.now() + 2500);
    await client.createSender(queue).sendMessages({ body: "p", scheduledEnqueueTimeUtc: due });
    const receiver = client.createReceiver(queue);
    await expectSilence(receiver);
    const [message] = await receive(receiver);
    assert.ok(Date.now() >= due.getTime(), "early");
    assert.ok(message.enqueuedTimeUtc >= due);
    await receiver.completeMessage(message);
  },

  async receive_and_delete(client) {
    await client.createSender(queue).sendMessages([{ body: 1 }, { body: 2 }]);
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const messages = await receive(receiver, 2);
    assert.deepEqual(messages.map((m) => m.body), [1, 2]);
    await receiver.close();
    await sleep(LOCK_MS);
    await expectSilence(client.createReceiver(queue));
  },

  async time_to_live(client) {
    const sender = client.createSender(queue);
    await sender.sendMessages({ body: "short", timeToLive: 1000 });
    await sender.sendMessages({ body: "long", timeToLive: 3600000 });
    await sleep(1500);
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    assert.equal(message.body, "long");
    assert.equal(message.timeToLive, 3600000);
    assert.equal(message.expiresAtUtc - message.enqueuedTimeUtc, 3600000);
    await receiver.completeMessage(message);
    await expectSilence(receiver);
  },

  // Beyond an AMQP uint of milliseconds (49.7 days) and beyond RabbitMQ (3,650 days) the TTL stands
  // in the difference of two properties, which this client writes and reads for annotated messages.
  async long_time_to_live(client) {
    const sender = client.createSender(queue);
    const receiver = client.createReceiver(queue);
    for (const days of [49, 50, 3651, 10000]) {
      const timeToLive = days * 86400000;
      await sender.sendMessages({
        body: Buffer.from("x"),
        bodyType: "data",
        header: { timeToLive },
      });
      const [message] = await receive(receiver);
      assert.equal(message._rawAmqpMessage.header.timeToLive, timeToLive);
      await receiver.completeMessage(message);
    }
  },

  // Python's client and another library have sent values that this client does not write.
  async strange_values(client) {
    const receiver = client.createReceiver(`${queue}-strange`);
    const messages = await receive(receiver, 3);
    assert.deepEqual([messages[0].body.none, messages[0].body.last], [[], "!"]);
    const { letter, none, letters, last } = messages[1].body;
    assert.deepEqual([letter, none, letters, last], [120, [], [97, 98], "!"]);
    assert.equal(messages[1].deadLetterReason, 7);
    assert.equal(messages[2].body.toString(), "next");
    for (const message of messages) await receiver.completeMessage(message);
  },

  async types(client) {
    const applicationProperties = {
      text: "ä☃", number: 1.5, whole: 7, large: 2 ** 40, yes: true, no: false,
      date: new Date(1795226000123), nothing: null,
    };
    const sent = {
      body: { nested: [1, "two", null] },
      messageId: "id-1", correlationId: "corr", contentType: "application/json", subject: "sub",
      to: "to", replyTo: "reply", sessionId: "s", partitionKey: "s", applicationProperties,
    };
    const sender = client.createSender(queue);
    const bodies = [
      sent,
      { body: Buffer.from([0, 255, 128]) },
      { body: "value", bodyType: "value" },
      { body: [1, "two", [3]], bodyType: "sequence" },
      { body: 12345, messageId: 17 },
    ];
    for (const message of bodies) {
      await sender.sendMessages(message.bodyType ? annotated(message) : message);
    }
    const receiver = client.createReceiver(queue);
    const got = await receive(receiver, bodies.length);
    for (const message of got) await receiver.completeMessage(message);
    const properties = { ...got[0].applicationProperties };
    // rhea gives an AMQP timestamp back as a number or a Date, by version.
    properties.date = new Date(properties.date);
    assert.deepEqual(properties, applicationProperties);
    for (const name of ["body", "messageId", "correlationId", "contentType", "subject", "to",
      "replyTo", "sessionId", "partitionKey"]) {
      assert.deepEqual(got[0][name], sent[name], name);
    }
    assert.deepEqual(Buffer.from(got[1].body), bodies[1].body);
    assert.equal(got[2].body, "value");
    assert.equal(got[2]._rawAmqpMessage.bodyType, "value");
    assert.deepEqual(got[3].body, [1, "two", [3]]);
    assert.equal(got[3]._rawAmqpMessage.bodyType, "sequence");
    assert.equal(got[4].body, 12345);
    assert.equal(got[4].messageId, 17);
  },

  // The client writes the footer before the body; Azure's own test amqpAnnotatedMessage does this.
  async annotated(client) {
    const sent = {
      body: "body",
      bodyType: "data",
      header: { durable: false, firstAcquirer: false, priority: 20, timeToLive: 100000 },
      footer: { foot: "note" },
      messageAnnotations: { mine: "annotation" },
    };
    await client.createSender(queue).sendMessages(sent);
    const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const [{ body, _rawAmqpMessage: raw }] = await receive(receiver);
    assert.equal(body, "body");
    assert.deepEqual({ ...raw.header }, { ...sent.header, deliveryCount: 0 });
    assert.deepEqual({ ...raw.footer }, sent.footer);
    assert.equal(raw.messageAnnotations.mine, "annotation");
  },

  // Through `$management` of the subscription, which asks for the right to listen only.
  async rules(client) {
    const topic = `${queue}-topic`;
    const manager = client.createRuleManager(topic, "rules");
    const listed = async () => {
      const found = [];
      // The client gives one `undefined` for an empty list.
      for await (const rule of manager.listRules()) if (rule) found.push(rule);
      return found;
    };
    const [first, ...others] = await listed();
    assert.deepEqual([first.name, first.filter, others], ["$Default", { sqlExpression: "1=1" }, []]);
    await manager.deleteRule("$Default");
    assert.deepEqual(await listed(), []);

    const when = new Date(1795226000123);
    await manager.createRule("large", { sqlExpression: "quantity > 10" }, {
      sqlExpression: "SET seen = TRUE; SET sys.Label = 'large'",
    });
    const correlation = {
      subject: "order", contentType: "text/plain", messageId: "m", correlationId: "c", to: "t",
      replyTo: "r", sessionId: "s", replyToSessionId: "rs",
      applicationProperties: { text: "s1", number: 7, fraction: 1.5, yes: true },
    };
    await manager.createRule("same", correlation);
    await manager.createRule("dated", { applicationProperties: { when } });
    await manager.createRule("never", { sqlExpression: "1=0" });
    const [dated, large, never, same] = await listed();
    assert.equal(large.filter.sqlExpression, "quantity > 10");
    assert.equal(large.action.sqlExpression, "SET seen = TRUE; SET sys.Label = 'large'");
    assert.deepEqual({ ...same.filter }, correlation);
    assert.deepEqual([same.name, same.action], ["same", {}]);
    assert.equal(new Date(dated.filter.applicationProperties.when).getTime(), when.getTime());
    assert.deepEqual(never.filter, { sqlExpression: "1=0" });

    await expectError("MessagingEntityAlreadyExists", () =>
      manager.createRule("LARGE", { sqlExpression: "1=1" }),
    );
    await expectError("MessagingEntityNotFound", () => manager.deleteRule("none"));
    const refused = await expectError("GeneralError", () =>
      manager.createRule("bad", { sqlExpression: "quantity >" }),
    );

    const sender = client.createSender(topic);
    await sender.sendMessages([
      { body: "a", applicationProperties: { quantity: 11 } },
      { body: "b", applicationProperties: { quantity: 10 } },
      { ...correlation, body: "c", partitionKey: "s" },
      { body: "d", applicationProperties: { when } },
    ]);
    const receiver = client.createReceiver(topic, "rules");
    const messages = await receive(receiver, 3);
    for (const message of messages) await receiver.completeMessage(message);
    assert.deepEqual(messages.map((m) => m.body), ["a", "c", "d"]);
    assert.deepEqual({ ...messages[0].applicationProperties }, {
      quantity: 11, seen: true, RuleName: "large",
    });
    assert.equal(messages[0].subject, "large");
    await expectSilence(receiver);
    return refused;
  },

  async large(client) {
    const body = Buffer.alloc(200 * 1024, 7);
    await client.createSender(queue).sendMessages({ body });
    const receiver = client.createReceiver(queue);
    const [message] = await receive(receiver);
    assert.ok(Buffer.from(message.body).equals(body));
    await receiver.completeMessage(message);
  },

  async too_large(client) {
    return expectError("MessageSizeExceeded", () =>
      client.createSender(queue).sendMessages({ body: Buffer.alloc(300 * 1024) }),
    );
  },

  wrong_key: () =>
    withClient(
      (client) =>
        expectError("UnauthorizedAccess", () =>
          client.createSender(queue).sendMessages({ body: "x" }),
        ),
      connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong"),
    ),

  async unknown_entity(client) {
    const text = await expectError("MessagingEntityNotFound", () =>
      client.createSender("no-such-queue").sendMessages({ body: "x" }),
    );
    await expectError("MessagingEntityNotFound", () =>
      client.createReceiver("no-such-queue").receiveMessages(1, { maxWaitTimeInMs: 1000 }),
    );
    return text;
  },
};

async function sendAndComplete(client, count) {
  const sender = client.createSender(queue);
  const before = Date.now();
  for (let i = 0; i < count; i++) await sender.sendMessages({ body: { i }, messageId: `m${i}` });
  const receiver = client.createReceiver(queue);
  const messages = await receive(receiver, count);
  for (const [i, message] of messages.entries()) {
    assert.deepEqual(message.body, { i });
    assert.equal(message.messageId, `m${i}`);
    assert.equal(message.deliveryCount, 0);
    assert.equal(message.state, "active");
    assert.ok(message.sequenceNumber.gt(0));
    assert.ok(message.enqueuedTimeUtc > before - 1000 && message.enqueuedTimeUtc <= Date.now());
    assert.ok(message.lockedUntilUtc > new Date());
    await receiver.completeMessage(message);
  }
  await expectSilence(receiver);
}

function annotated({ body, bodyType }) {
  return { body, bodyType };
}

function deferred() {
  let resolve, reject;
  const promise = new Promise((a, b) => ([resolve, reject] = [a, b]));
  return { promise, resolve, reject };
}

// Leaves the queue empty for the next scenario, whatever this one left behind.
async function empty() {
  await withClient(async (client) => {
    await sleep(LOCK_MS);
    for (const options of [{}, { subQueueType: "deadLetter" }]) {
      const receiver = client.createReceiver(queue, { ...options, receiveMode: "receiveAndDelete" });
      while ((await receiver.receiveMessages(100, { maxWaitTimeInMs: 500 })).length > 0);
    }
  }).catch((error) => console.error(`could not empty ${queue}: ${error}`));
}

const [share, shares] = (process.env.SHARE ?? "0/1").split("/").map(Number);
const mine = Object.keys(scenarios).filter((_, place) => place % shares === share);

for (const name of wanted.length > 0 ? wanted : mine) {
  const result = { scenario: name, ok: true, detail: "" };
  const started = Date.now();
  try {
    const ending = AbortSignal.timeout(150_000);
    const late = new Promise((_, reject) =>
      ending.addEventListener("abort", () => reject(new Error("no end after 150 s"))),
    );
    result.detail = (await Promise.race([withClient(scenarios[name]), late])) ?? "";
  } catch (error) {
    result.ok = false;
    result.detail = `${error.code ?? error.name}: ${error.message}\n${error.stack}`;
  }
  result.seconds = (Date.now() - started) / 1000;
  console.log(JSON.stringify(result));
  if (!result.ok) await empty();
}
process.exit(0);
