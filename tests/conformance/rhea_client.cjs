// Talks to a gateway with rhea: node rhea_client.cjs PORT RULE KEY. Prints one JSON object.
const { createRequire } = require("node:module");
const rhea = createRequire(process.cwd() + "/")("rhea");

const [port, username, password] = process.argv.slice(2);
const { types } = rhea;
const COUNT = 200;
const LARGE = Buffer.alloc(20000, 7);

const bodies = {
  uuid: types.wrap_uuid(rhea.generate_uuid ? Buffer.alloc(16, 1) : Buffer.alloc(16, 1)),
  ulong: types.wrap_ulong(5),
  long: types.wrap_long(-5),
  int: types.wrap_int(-5),
  symbol: types.wrap_symbol("sym"),
  string: "text",
  double: types.wrap_double(1.5),
  float: types.wrap_float(0.5),
  list: [1, "two", null],
  map: { a: 1, b: [true] },
  array: types.wrap_array([1, 2, 3], 0x71),
  data: rhea.message.data_section(LARGE),
  sequence: rhea.message.sequence_section([1, 2]),
};

const container = rhea.create_container();
const connection = container.connect({
  host: "127.0.0.1", port: Number(port), username, password, max_frame_size: 1024, reconnect: false,
});
const result = { bodies: {}, settled: 0, drained: false, received: 0, released: 0 };
const names = Object.keys(bodies);
const fail = (what) => (context) => {
  console.error(what, context.error ?? context.receiver?.error ?? context.sender?.error);
  process.exit(1);
};
for (const event of ["connection_error", "disconnected", "sender_error", "receiver_error", "rejected"]) {
  if (event !== "disconnected") container.on(event, fail(event));
}

const sender = connection.open_sender("q");
let sent = 0;
function pump() {
  while (sender.sendable() && sent < names.length + COUNT) {
    const name = names[sent];
    sender.send(name
      ? { body: bodies[name], message_id: name, application_properties: { n: types.wrap_byte(1) } }
      : { body: sent - names.length, message_id: types.wrap_ulong(sent) });
    sent += 1;
  }
}
container.on("sendable", pump);
container.on("accepted", () => {
  result.settled += 1;
  if (result.settled === names.length + COUNT) receive();
});

function receive() {
  const receiver = connection.open_receiver({
    source: "q", credit_window: 0, autoaccept: false, snd_settle_mode: 0,
  });
  let isFirst = true;
  receiver.on("receiver_open", () => receiver.add_credit(1));
  receiver.on("message", ({ message, delivery }) => {
    if (isFirst) {
      isFirst = false;
      result.released += 1;
      // in a turn of its own: rhea sends one outcome for all deliveries of a turn
      delivery.release({ delivery_failed: false });
      setImmediate(() => receiver.add_credit(names.length + COUNT + 10));
      return;
    }
    result.received += 1;
    if (names.includes(message.message_id)) {
      const { body } = message;
      result.bodies[message.message_id] = Buffer.isBuffer(body)
        ? `Buffer ${body.length}` : body?.typecode === 0x75
        ? `Data ${body.content.equals(LARGE)}` : JSON.stringify(body);
    }
    delivery.accept();
    if (result.received === names.length + COUNT) {
      receiver.drain = true;
      receiver.add_credit(1);
    }
  });
  receiver.on("receiver_drained", () => {
    result.drained = receiver.credit === 0;
    receiver.close();
    connection.close();
  });
}
container.on("connection_close", () => {
  console.log(JSON.stringify(result));
});
