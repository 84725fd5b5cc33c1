// The text of a log line.

/** Returns the values as one text: texts as they are, errors with their stack, others as JSON. */
export const formatted = (values) => values.map(shown).join(" ");

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return stackOf(value);
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value);
  } catch {
    // A cycle, or a BigInt.
    return String(value);
  }
}

/** Returns an error's message with its stack and its causes; file and line are those of the source. */
export function stackOf(error) {
  const stack = located(error.stack ?? "");
  const head = `${error.name}: ${error.message}`;
  // Only some engines begin the stack with the message.
  const text = stack.startsWith(error.name) ? stack : `${head}\n${stack}`;
  const cause = error.cause instanceof Error ? `\ncaused by ${stackOf(error.cause)}` : "";
  return text.trimEnd() + cause;
}

/** The build writes the lines of the sources here, by which a stack's lines are replaced. */
const LINES = "__conclaveLines";

function located(stack) {
  const table = globalThis[LINES];
  if (!table) return stack;
  const lines = table.lines.split(";");
  return stack.replace(/([^\s(]*[/\\])?plugin\.js:(\d+)(:\d+)?/g, (whole, _folder, line) => {
    const [source, sourceLine] = (lines[Number(line) - 1] ?? "").split(":");
    return sourceLine ? `${table.sources[Number(source)]}:${sourceLine}` : whole;
  });
}
