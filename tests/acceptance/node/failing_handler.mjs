// A subscribe whose handler fails at the first delivery of every fourth message: the SDK abandons
// it beside the completions of others. Prints one JSON object, as `scenarios.mjs` does.
//
//   node --require corrected.cjs failing_handler.mjs CONNECTION_STRING QUEUE
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const COUNT = 40;
const PATIENCE_MS = 120_000;

const [connectionString, queue] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString);
const sender = client.createSender(queue);
await sender.sendMessages(Array.from({ length: COUNT }, (_, body) => ({ body })));
const receiver = client.createReceiver(queue);
const handled = [];
const failed = new Set();
const subscription = receiver.subscribe(
  {
    processMessage: async ({ body }) => {
      if (body % 4 === 0 && !failed.has(body)) {
        failed.add(body);
        throw new Error(`fails once with ${body}`);
      }
      handled.push(body);
    },
    processError: async () => {},
  },
  { maxConcurrentCalls: 20 },
);
const end = Date.now() + PATIENCE_MS;
while (handled.length < COUNT && Date.now() < end) await sleep(20);
await subscription.close();
await receiver.close();
await client.close();
const detail = handled.sort((a, b) => a - b).join(" ");
const expected = Array.from({ length: COUNT }, (_, body) => body).join(" ");
console.log(JSON.stringify({ scenario: "failing_handler", ok: detail === expected, detail }));
process.exit(0);
