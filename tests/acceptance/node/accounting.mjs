// A client at ordinary work: it settles in every way and prints what it does and sees, a line each.
//
//   node --require ./corrected.cjs accounting.mjs KIND CONNECTION_STRING PLACE
//
// KIND is processor (subscribe, with a handler that throws), batch or sessions. Ends with its input:
// with 3 if the client has left something open, as it may when its connection was lost.
import { ServiceBusClient } from "@azure/service-bus";

const [kind, connectionString, place] = process.argv.slice(2);
const LATE_MS = 500;
const BATCH = 20;
const AT_ONCE = 20;
const PAUSE_MS = 200;
const IN_SESSION = 15;
// The client's own timers are 60 s: by then it has ended, or something of it stays open for good.
const ENDS_WITHIN_MS = 120_000;
const UNCLOSED = 3;
const SHARES = [
  [68, "complete"],
  [80, "abandon"],
  [85, "throw"],
  [90, "dead"],
  [95, "defer"],
  [97, "lapse"],
  [100, "late"],
];

let isEnding = false;
const client = new ServiceBusClient(connectionString, {
  retryOptions: { timeoutInMs: kind === "sessions" ? 3_000 : 60_000, maxRetries: 0 },
});
const [topic, subscription] = place.split("/subscriptions/");
// Some messages are left to their lock: the client must not renew it.
const unrenewed = { maxAutoLockRenewalDurationInMs: 0 };
const of = (call, ...rest) =>
  subscription ? client[call](topic, subscription, ...rest) : client[call](place, ...rest);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function fnv1a(text) {
  let value = 2166136261;
  for (const byte of Buffer.from(text)) value = Math.imul(value ^ byte, 16777619) >>> 0;
  return value;
}

function fateOf(message, inSession) {
  const value = fnv1a(`${message.messageId}/${message.deliveryCount ?? 0}`);
  if (message.messageId.startsWith("poison")) return value % 2 ? "throw" : "abandon";
  const fate = SHARES.find(([below]) => value % 100 < below)[1];
  return inSession && fate === "lapse" ? "complete" : fate;
}

function say(what, message, fields) {
  const line = {
    what,
    id: message.messageId,
    number: message.sequenceNumber.toNumber(),
    session: message.sessionId ?? "",
    at: Date.now(),
    ...fields,
  };
  process.stdout.write(JSON.stringify(line) + "\n");
}

function got(message, until) {
  say("got", message, { count: message.deliveryCount ?? 0, until: until?.getTime() ?? null });
}

async function settle(receiver, message, how) {
  const calls = {
    complete: "completeMessage",
    abandon: "abandonMessage",
    throw: "abandonMessage",
    dead: "deadLetterMessage",
    defer: "deferMessage",
  };
  say("settling", message, { how });
  try {
    await receiver[calls[how]](message);
  } catch (error) {
    say("refused", message, { how, error: String(error) });
    return false;
  }
  say("settled", message, { how });
  return true;
}

// Returns once the message is settled; throws what a handler would.
async function handle(receiver, message, fate, isProcessor) {
  if (fate === "late") {
    await pause(LATE_MS);
    fate = "complete";
  }
  if (fate === "lapse" || (fate === "throw" && isProcessor)) {
    say("settling", message, { how: fate });
    if (fate === "throw") throw new Error("the handler has failed");
    return;
  }
  const done = await settle(receiver, message, fate);
  if (done && fate === "defer" && fnv1a(message.messageId) % 2 === 0) {
    const [again] = await receiver.receiveDeferredMessages([message.sequenceNumber]);
    got(again, receiver.sessionLockedUntilUtc ?? again.lockedUntilUtc);
    await settle(receiver, again, "complete");
  }
}

async function processor() {
  const receiver = of("createReceiver", unrenewed);
  const atWork = new Set();
  const running = receiver.subscribe(
    {
      async processMessage(message) {
        got(message, message.lockedUntilUtc);
        const work = handle(receiver, message, fateOf(message, false), true);
        atWork.add(work);
        await work.finally(() => atWork.delete(work));
      },
      async processError({ error, errorSource }) {
        if (errorSource !== "processMessageCallback") console.error(errorSource, String(error));
      },
    },
    { maxConcurrentCalls: AT_ONCE, autoCompleteMessages: false },
  );
  while (!isEnding) await pause(PAUSE_MS);
  await running.close();
  // What a handler settles after the client was closed opens a connection that nothing closes.
  await Promise.allSettled(atWork);
  await receiver.close();
}

async function batch() {
  const receiver = of("createReceiver", unrenewed);
  while (!isEnding) {
    const messages = await receiver.receiveMessages(BATCH, { maxWaitTimeInMs: 500 });
    await Promise.all(
      messages.map((message) => {
        got(message, message.lockedUntilUtc);
        return handle(receiver, message, fateOf(message, false), false);
      }),
    );
  }
  await receiver.close();
}

async function sessions() {
  while (!isEnding) {
    let receiver;
    try {
      receiver = await of("acceptNextSession");
    } catch (error) {
      if (error.code !== "ServiceTimeout" && error.code !== "SessionCannotBeLocked") throw error;
      continue;
    }
    for (let turn = 0; turn < IN_SESSION; turn++) {
      const messages = await receiver.receiveMessages(3, { maxWaitTimeInMs: 500 });
      if (!messages.length) break;
      for (const message of messages) {
        got(message, receiver.sessionLockedUntilUtc);
        await handle(receiver, message, fateOf(message, true), false);
      }
    }
    await receiver.close();
  }
}

function leave() {
  console.error("left open:", process.getActiveResourcesInfo().join(", "));
  process.exit(UNCLOSED);
}

function end() {
  isEnding = true;
  setTimeout(leave, ENDS_WITHIN_MS).unref();
}

process.exitCode = UNCLOSED; // what Node ends with when nothing is left to wait for, but a close
process.stdin.on("end", end).resume();
await { processor, batch, sessions }[kind]();
await client.close();
process.exitCode = 0;
