// A processor whose two handlers defer, and then receive what they have deferred, one a second after
// the other: each says so. It closes when its input ends, and says that it has.
//
//   node lost.mjs patient|hasty CONNECTION_STRING QUEUE
//
// The patient one waits for its handlers before it closes receiver and client.
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const HANDLERS = 2;
const BETWEEN_MS = 1_000;

const [kind, connectionString, queue] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
const atWork = new Set();

let begin;
const allDeferred = new Promise((resolve) => (begin = resolve));
let deferred = 0;

async function handle(message) {
  await receiver.deferMessage(message);
  if (++deferred === HANDLERS) begin();
  await allDeferred;
  await sleep(BETWEEN_MS * message.body);
  console.log("asks");
  await receiver.receiveDeferredMessages([message.sequenceNumber]);
}

const subscription = receiver.subscribe(
  {
    processMessage: async (message) => {
      const work = handle(message);
      atWork.add(work);
      await work.finally(() => atWork.delete(work));
    },
    processError: async () => {},
  },
  { maxConcurrentCalls: HANDLERS, autoCompleteMessages: false },
);
process.stdin.resume();
await new Promise((resolve) => process.stdin.on("end", resolve));
await subscription.close();
if (kind === "patient") await Promise.allSettled(atWork);
await receiver.close();
await client.close();
console.log("closed");
