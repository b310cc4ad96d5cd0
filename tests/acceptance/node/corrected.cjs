// rhea 3.0.5 writes two settlements that follow each other in one write as one range with the outcome
// of the first (lib/session.js, write_dispositions compares only from the third on). Programs that
// start with `--require` of this file get a corrected copy of that file, made as it is loaded.
const Module = require("node:module");

const FAULT = "(first !== last && !message.are_outcomes_equivalent(";
const CURE = "(first !== delivery && !message.are_outcomes_equivalent(";
const compile = Module.prototype._compile;

Module.prototype._compile = function (content, filename) {
  if (filename.replaceAll("\\", "/").endsWith("rhea/lib/session.js")) {
    if (!content.includes(FAULT)) throw new Error(`${filename} is not the one that is known`);
    content = content.replace(FAULT, CURE);
  }
  return compile.call(this, content, filename);
};
