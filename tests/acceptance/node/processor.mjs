// A processor that completes what comes until it has had enough; prints how many, and the rate.
//
//   node processor.mjs CONNECTION_STRING QUEUE CREDIT COUNT
import { ServiceBusClient } from "@azure/service-bus";

const IDLE_MS = 15_000;
const [connectionString, queue, credit, count] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString);
const receiver = client.createReceiver(queue);
let received = 0;
let begin;
let last = performance.now();

await new Promise((resolve) => {
  const idle = setInterval(() => performance.now() - last > IDLE_MS && stop(), 500);
  const stop = () => resolve(clearInterval(idle));
  receiver.subscribe(
    {
      async processMessage(message) {
        begin ??= performance.now();
        await receiver.completeMessage(message);
        last = performance.now();
        if (++received === Number(count)) stop();
      },
      async processError({ error }) {
        console.error(String(error));
      },
    },
    { maxConcurrentCalls: Number(credit), autoCompleteMessages: false },
  );
});
const rate = (1000 * received) / Math.max(last - begin, 1);
console.log(JSON.stringify({ received, rate }));
await client.close();
