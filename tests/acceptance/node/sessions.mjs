// Accepts sessions one after the other with the unmodified @azure/service-bus and completes what they have;
// prints {"rate"}: sessions a second.
//
//   node sessions.mjs CONNECTION_STRING QUEUE SESSIONS OF_EACH RECEIVERS
import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";

const [connectionString, queue, ...numbers] = process.argv.slice(2);
const [sessions, ofEach, receivers] = numbers.map(Number);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });

async function work(count) {
  for (let session = 0; session < count; session++) {
    const receiver = await client.acceptNextSession(queue);
    let left = ofEach;
    while (left > 0) {
      const messages = await receiver.receiveMessages(left, { maxWaitTimeInMs: 10_000 });
      assert.ok(messages.length, `${receiver.sessionId} has ${left} more messages`);
      for (const message of messages) await receiver.completeMessage(message);
      left -= messages.length;
    }
    await receiver.close();
  }
}

const begin = performance.now();
await Promise.all(Array.from({ length: receivers }, () => work(sessions / receivers)));
console.log(JSON.stringify({ rate: (1000 * sessions) / (performance.now() - begin) }));
await client.close();
