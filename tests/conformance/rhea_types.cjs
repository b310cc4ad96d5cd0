// Reads AMQP 1.0 values as lines of hex, and prints each as rhea reads it and writes it again:
// {"type", "text", "hex"}; "hex" is null where rhea cannot write what it has read.
const readline = require("node:readline");
const { createRequire } = require("node:module");
const types = createRequire(process.cwd() + "/")("rhea/lib/types.js");

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const reader = new types.Reader(Buffer.from(line, "hex"));
  const typed = reader.read();
  let hex = null;
  try {
    const writer = new types.Writer();
    writer.write(typed);
    hex = writer.toBuffer().toString("hex");
  } catch {
    // rhea reads arrays of uuid and timestamp, and cannot write them
  }
  const type = typed?.type?.name ?? null;
  console.log(JSON.stringify({ type, left: reader.remaining(), hex }));
});
