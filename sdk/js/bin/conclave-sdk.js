#!/usr/bin/env node
// `describe` and `prepare`, which the program `conclave` calls. Both print one JSON object; with
// exit code 1 it is `{"errors": [one sentence each]}`.

import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { BuildError } from "../build/error.js";
import { describe } from "../build/describe.js";
import { prepare } from "../build/prepare.js";

const USAGE = `usage:
  conclave-sdk describe APP.js
  conclave-sdk prepare APP.js --wit FOLDER --out FOLDER [--engine quickjs|starlingmonkey]
both take --toolchain FOLDER, where \`npm ci\` has installed toolchain/package.json`;

const options = {
  wit: { type: "string" },
  out: { type: "string" },
  engine: { type: "string", default: "quickjs" },
  toolchain: { type: "string", default: fileURLToPath(new URL("../toolchain", import.meta.url)) },
};

async function main() {
  let read;
  try {
    read = parseArgs({ options, allowPositionals: true });
  } catch (error) {
    throw new BuildError([`${error.message}\n${USAGE}`]);
  }
  const {
    positionals: [command, app, ...more],
    values,
  } = read;
  const isComplete = command === "describe" || (values.wit && values.out);
  if (!["describe", "prepare"].includes(command) || !app || more.length > 0 || !isComplete) {
    throw new BuildError([USAGE]);
  }
  const at = (path) => path && resolve(path);
  const paths = {
    app: at(app),
    wit: at(values.wit),
    out: at(values.out),
    toolchain: at(values.toolchain),
  };
  return command === "describe" ? describe(paths) : prepare({ ...paths, engine: values.engine });
}

try {
  console.log(JSON.stringify(await main(), null, 2));
} catch (error) {
  if (!(error instanceof BuildError)) throw error;
  console.log(JSON.stringify({ errors: error.errors }, null, 2));
  process.exitCode = 1;
}
