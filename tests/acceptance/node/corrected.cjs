// Programs that start with `--require` of this file get corrected copies of two files, made as they are
// loaded.
//
// rhea 3.0.5 writes two settlements that follow each other in one write as one range with the outcome
// of the first (lib/session.js, write_dispositions compares only from the third on).
//
// @azure/service-bus 7.9.5 closes a receiver, and so gives up its session, when a drain is not answered
// within 200 ms (dist/index.js): on a busy machine that says nothing of the service.
const Module = require("node:module");

const CORRECTED = [
  {
    file: "rhea/lib/session.js",
    fault: "(first !== last && !message.are_outcomes_equivalent(",
    cure: "(first !== delivery && !message.are_outcomes_equivalent(",
  },
  {
    file: "@azure/service-bus/dist/index.js",
    fault: "const receiveDrainTimeoutInMs = 200;",
    cure: "const receiveDrainTimeoutInMs = 20_000;",
  },
];
const compile = Module.prototype._compile;

Module.prototype._compile = function (content, filename) {
  for (const { file, fault, cure } of CORRECTED) {
    if (!filename.replaceAll("\\", "/").endsWith(file)) continue;
    if (!content.includes(fault)) throw new Error(`${filename} is not the one that is known`);
    content = content.replace(fault, cure);
  }
  return compile.call(this, content, filename);
};
