// Conversions between observations of the contract and those of a log, and from the messages of a
// history and the entries of the past to events.

import { InvalidArguments } from "../errors.js";
import { json } from "../wire.js";
import { action, observation, readEvent, writeEvent } from "./events.js";
import { compact, isObject } from "./fields.js";
import { UNKNOWN_COMMAND } from "./forms.js";
import { eventsOf } from "./turns.js";

/** The text between an agent's name and its outputs (O-090). */
const FINISHES = " finishes task";

/** Returns an observation in the form of an era. */
export function observationToJson(value, era = "2025-11") {
  const event = eventOf(value);
  return event ? writeEvent(event, era) : rawCustom(value.val);
}

/** Returns the observation of a form of either era. The error names the problem. */
export function observationFromJson(value) {
  const event = readEvent(value);
  if (event.isAction) {
    throw new InvalidArguments("an action was written where an observation is wanted");
  }
  const read = READ[event.kind]?.(event.fields);
  if (read !== undefined) return read;
  const { extras } = writeEvent(event, "2025-11");
  return { tag: "custom", val: { name: event.kind, content: event.fields.content, extras } };
}

/** Returns the events of a message in the form of an era: speech, calls and results. */
export function formsOfMessage({ seq, sender, content, toolCalls, toolResults }, era) {
  const source = { llm: "agent", user: "user" }[sender] ?? "environment";
  const events = [];
  // The host's own text is an observation only as the result of a call. Elsewhere it is a message
  // of the environment.
  if (toolResults.length === 0 && (content !== "" || toolCalls.length === 0)) {
    events.push(action("message", { content }));
  }
  for (const { name, arguments: values } of toolCalls) {
    events.push(action("call_tool_mcp", { name, arguments: isObject(values) ? values : {} }));
  }
  for (const { name, content: text, isError } of toolResults) {
    events.push(
      isError
        ? observation("error", { content: text })
        : observation("mcp", { content: text, name }),
    );
  }
  return events.map((event) => writeEvent(event, era, { source, id: seq }));
}

/** Returns the events of an entry of the past: the action, then its observation. */
export function formsOfPast({ action: done, observation: seen, seq }, era) {
  const events = done === undefined ? [] : eventsOf({ action: done });
  const forms = events.map((event) => writeEvent(event, era, { source: "agent", id: seq }));
  const event = seen === undefined ? undefined : eventOf(seen);
  return event ? [...forms, writeEvent(event, era, { id: seq })] : forms;
}

/** Returns the event of an observation; `undefined` for a custom one that no log knows. */
function eventOf({ tag, val }) {
  if (tag !== "custom") {
    if (!Object.hasOwn(WRITTEN, tag)) throw new TypeError(`the contract has no observation ${tag}`);
    return observation(...WRITTEN[tag](val));
  }
  try {
    return readEvent(rawCustom(val));
  } catch {
    return undefined;
  }
}

const rawCustom = ({ name, content, extras = {} }) => ({
  observation: name,
  content,
  extras: JSON.parse(json(extras)),
});

/** The kind and the fields of each observation. */
const WRITTEN = {
  null: () => ["null", {}],
  command: ({ commandId, command, exitCode, content }) => [
    "run",
    { content, command, metadata: { ...UNKNOWN_COMMAND, exit_code: exitCode, pid: commandId } },
  ],
  cell: ({ code, output }) => ["run_ipython", { content: output, code }],
  browsed: ({ url, status, content, isError }) => [
    "browse",
    { url, content, status_code: status, error: isError, trigger_by_action: "browse" },
  ],
  file: ({ path, content }) => ["read", { content, path }],
  written: (path) => ["write", { path }],
  recalled: (memories) => ["recall", { memories }],
  delegated: ({ task, outputs }) => ["delegate", delegated(task, JSON.parse(json(outputs)))],
  tool: ({ name, content, isError }) =>
    isError ? ["error", { content }] : ["mcp", { content, name }],
  success: (content) => ["success", { content }],
  error: (content) => ["error", { content }],
};

/** O-090: `{Name} finishes task with k: v, k2: v2`. */
function delegated(task, value) {
  const outputs = isObject(value) ? value : value === null ? {} : { content: value };
  const listed = Object.keys(outputs)
    .sort()
    .map((key) => {
      const one = outputs[key];
      return `${key}: ${typeof one === "string" ? one : compact(one)}`;
    });
  return { content: `${task}${FINISHES} with ${listed.join(", ")}`, outputs };
}

const within = (number, low, high, otherwise) =>
  number >= low && number <= high ? number : otherwise;

/** The observation of each kind that the contract has a case for. */
const READ = {
  null: () => ({ tag: "null" }),
  run: ({ command, content, metadata }) => ({
    tag: "command",
    val: {
      commandId: metadata.pid,
      command,
      exitCode: within(metadata.exit_code, -(2 ** 31), 2 ** 31 - 1, -1),
      content,
    },
  }),
  run_ipython: ({ code, content }) => ({ tag: "cell", val: { code, output: content } }),
  browse: ({ url, status_code: status, content, error }) => ({
    tag: "browsed",
    val: { url, status: within(status, 0, 2 ** 16 - 1, 0), content, isError: error },
  }),
  read: ({ path, content }) => ({ tag: "file", val: { path, content } }),
  write: ({ path }) => ({ tag: "written", val: path }),
  recall: ({ recall_type: type, memories }) =>
    type === null ? { tag: "recalled", val: memories } : undefined,
  delegate: ({ content, outputs }) => {
    const at = content.indexOf(FINISHES);
    return { tag: "delegated", val: { task: at < 0 ? "" : content.slice(0, at), outputs } };
  },
  mcp: ({ name, content }) => ({
    tag: "tool",
    val: { callId: "", name, content, value: undefined, isError: false },
  }),
  success: ({ content }) => ({ tag: "success", val: content }),
  error: ({ content }) => ({ tag: "error", val: content }),
};
