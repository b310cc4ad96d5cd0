// Logs in with @azure/identity and works with the unmodified @azure/service-bus.
//
//   NODE_EXTRA_CA_CERTS=ca.pem node tokens.mjs HOST:PORT QUEUE [SCENARIO...]
//   NODE_EXTRA_CA_CERTS=ca.pem node tokens.mjs HOST:PORT QUEUE load
//
// Prints one JSON object a scenario, {"scenario", "ok", "detail"}. As `load` it sends a message and completes it, again
// and again on the same two links, and prints {"round"} for each or {"error"} and begins anew; ends with its input.
// AUTHORITY, TENANT, APPLICATION and SECRET are the credential; without them it is the environment's.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ClientSecretCredential, DefaultAzureCredential } from "@azure/identity";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const [host, queue, ...chosen] = process.argv.slice(2);
const { AUTHORITY, TENANT, APPLICATION, SECRET } = process.env;
const PATIENCE_MS = 120_000;
const PAUSE_MS = 200;

const credential = AUTHORITY
  ? new ClientSecretCredential(TENANT, APPLICATION, SECRET, { authorityHost: AUTHORITY, disableInstanceDiscovery: true })
  : new DefaultAzureCredential();

async function withClient(body) {
  const bus = new ServiceBusClient(host, credential, { retryOptions: { maxRetries: 0 } });
  try {
    await body(bus);
  } finally {
    await bus.close();
  }
}

const scenarios = {
  messages: () =>
    withClient(async (bus) => {
      await bus.createSender(queue).sendMessages({ body: "hello" });
      const receiver = bus.createReceiver(queue);
      const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: PATIENCE_MS });
      assert.equal(message.body, "hello");
      await receiver.renewMessageLock(message);
      await receiver.completeMessage(message);
    }),

  sessions: () =>
    withClient(async (bus) => {
      const place = `${queue}-sessions`;
      await bus.createSender(place).sendMessages({ body: "hello", sessionId: "one" });
      const receiver = await bus.acceptSession(place, "one");
      const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: PATIENCE_MS });
      await receiver.setSessionState("seen");
      await receiver.completeMessage(message);
      assert.equal(await receiver.getSessionState(), "seen");
    }),

  async administration() {
    const admin = new ServiceBusAdministrationClient(host, credential);
    const name = `${queue}-made`;
    const made = await admin.createQueue(name, { forwardTo: queue });
    made.maxDeliveryCount = 3;
    await admin.updateQueue(made);
    const names = [];
    for await (const each of admin.listQueues()) names.push(each.name);
    assert.ok(names.includes(name));
    assert.equal((await admin.getQueue(name)).maxDeliveryCount, 3);
    await admin.deleteQueue(name);
  },
};

const say = (fact) => console.log(JSON.stringify(fact));

async function load() {
  let hasEnded = false;
  process.stdin.on("end", () => (hasEnded = true)).resume();
  for (let count = 0; !hasEnded; ) {
    try {
      await withClient(async (bus) => {
        const sender = bus.createSender(queue);
        const receiver = bus.createReceiver(queue);
        while (!hasEnded) {
          await sender.sendMessages({ body: count });
          const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: PATIENCE_MS });
          for (const message of messages) await receiver.completeMessage(message);
          say({ round: count++ });
          await sleep(PAUSE_MS);
        }
      });
    } catch (error) {
      say({ error: `${error.code ?? error.name}: ${error.message}` });
      await sleep(1000);
    }
  }
}

if (chosen[0] === "load") {
  await load();
  process.exit(0);
}
for (const name of chosen.length ? chosen : Object.keys(scenarios)) {
  try {
    await scenarios[name]();
    say({ scenario: name, ok: true, detail: "" });
  } catch (error) {
    say({ scenario: name, ok: false, detail: error.stack });
  }
}
process.exit(0);
