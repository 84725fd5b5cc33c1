// Programs, whose results a test has written.

import { denies, host } from "./current.js";

const granted = () => host().grants.programs;

export const commands = () => [...(granted()?.keys() ?? [])];

export function run({ program, arguments: args, directory, input }) {
  const command = [program, ...args].join(" ");
  const result = granted()?.get(command) ?? denies("exec", command);
  host().ran.push({ command, directory, input: new TextDecoder().decode(input) });
  const { exitCode = 0, stdout = "", stderr = "" } = result;
  const bytes = (text) => new TextEncoder().encode(text);
  const ending = { tag: "exit-code", val: exitCode };
  return { ending, stdout: bytes(stdout), stderr: bytes(stderr), dropped: 0n };
}
