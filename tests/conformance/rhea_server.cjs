// Serves one queue with rhea, and $cbs: node rhea_server.cjs. Prints its port; ends with its input.
const { createRequire } = require("node:module");
const rhea = createRequire(process.cwd() + "/")("rhea");

const container = rhea.create_container({ id: "rhea", autosettle: true });
const messages = [];
const senders = { q: [], $cbs: [] };
const counts = { accepted: 0, released: 0, rejected: 0, modified: 0 };
container.sasl_server_mechanisms.enable_anonymous();

function pump() {
  for (const sender of senders.q) {
    while (messages.length && sender.sendable()) sender.send(messages.shift());
  }
}
container.on("receiver_open", ({ receiver }) => {
  receiver.set_source(receiver.source);
  receiver.set_target(receiver.target);
  if (receiver.target.address === "nope") {
    receiver.set_target(null);
    receiver.close({ condition: "amqp:not-found", description: "no such queue" });
  }
});
container.on("sender_open", ({ sender }) => {
  sender.set_source(sender.source);
  sender.set_target(sender.target);
  (senders[sender.source.address] ?? []).push(sender);
});
container.on("message", ({ message, receiver }) => {
  if (receiver.target.address !== "$cbs") {
    messages.push(message);
    return pump();
  }
  for (const sender of senders.$cbs) {
    if (sender.target.address === message.reply_to) {
      sender.send({
        correlation_id: message.message_id,
        application_properties: { "status-code": rhea.types.wrap_int(202), "status-description": "Accepted" },
        body: null,
      });
    }
  }
});
for (const name of Object.keys(counts)) {
  container.on(name, (context) => {
    if (context.sender.source.address === "$cbs") return;
    counts[name] += 1;
    if (name === "released") { messages.push({ body: "again" }); pump(); }
  });
}
container.on("sendable", pump);
container.on("sender_flow", pump);
container.on("sender_draining", ({ sender }) => { pump(); sender.set_drained(true); });
container.on("disconnected", () => {});
const server = container.listen({ port: 0, host: "127.0.0.1" });
server.on("listening", () => console.log(server.address().port));
process.stdin.on("end", () => { console.log(JSON.stringify(counts)); process.exit(0); });
process.stdin.resume();
