// Programs of the operator's machine, outside the sandbox.

import * as host from "#host/exec";

import { ask } from "./errors.js";
import { toBytes } from "./utf8.js";
import { wellFormed } from "./well_formed.js";

export const commands = () => host.commands();

export function run(program, args = [], { directory, input = "", timeoutMs } = {}) {
  const command = {
    program: wellFormed(program),
    arguments: args.map(wellFormed),
    directory: directory === undefined ? undefined : wellFormed(directory),
    input: toBytes(input),
    timeoutMs,
    extra: [],
  };
  const { ending, stdout, stderr, dropped } = ask(program, () => host.run(command));
  return {
    exitCode: ending.tag === "exit-code" ? ending.val : undefined,
    stopped: stoppedBy(ending),
    stdout: text(stdout),
    stderr: text(stderr),
    stdoutBytes: stdout,
    stderrBytes: stderr,
    dropped: Number(dropped),
  };
}

function stoppedBy({ tag, val }) {
  if (tag === "exit-code") return undefined;
  return tag === "signal" ? `signal ${val}` : `its limit ${val}`;
}

/** A program may write bytes that are no text; they are replaced. */
const text = (bytes) => new TextDecoder().decode(bytes);
