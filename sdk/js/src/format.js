// Lines of the plugin's log.

import { log } from "#host/log";

import { wellFormedJson } from "./well_formed.js";

/** Writes values to the log: texts as they are, errors with their stack, others as JSON. */
export function writeLog(level, ...values) {
  const text = values.map(readable).join(" ").toWellFormed();
  for (const line of text.split("\n")) log(level, line);
}

function readable(value) {
  try {
    return shown(value);
  } catch {
    // A getter or `toString` of the value threw. A line of the log is no reason to fail.
    return "(a value whose text cannot be read)";
  }
}

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return stackOf(value);
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return wellFormedJson(value);
  } catch {
    // A cycle, or a BigInt.
    return String(value);
  }
}

/** Returns an error's message with its stack and its causes. */
function stackOf(error) {
  const stack = located(error.stack ?? "");
  const head = `${error.name}: ${error.message}`;
  // Only some engines begin the stack with the message.
  const text = stack.startsWith(error.name) ? stack : `${head}\n${stack}`;
  const cause = error.cause instanceof Error ? `\ncaused by ${stackOf(error.cause)}` : "";
  return text.trimEnd() + cause;
}

/** The build writes the lines of the sources here. */
const LINES = "__conclaveLines";
/** Frames of the SDK, whose files have its name there, and of the engines. */
const FOREIGN = /@conclave\/sdk|\(native\)|\/initializer\.js/;

/** Returns the stack with the files and lines of the sources, without the frames of the SDK. */
function located(stack) {
  const table = globalThis[LINES];
  if (!table) return stack;
  const lines = table.lines.split(";");
  const text = stack.replace(/([^\s(@]*[/\\])?plugin\.js:(\d+)(:\d+)?/g, (whole, _folder, line) => {
    const [source, sourceLine] = (lines[Number(line) - 1] ?? "").split(":");
    return sourceLine ? `${table.sources[Number(source)]}:${sourceLine}` : whole;
  });
  return text
    .split("\n")
    .filter((line) => !FOREIGN.test(line))
    .join("\n");
}
