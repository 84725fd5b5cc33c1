// The line for people that each event of a log carries (O-004).

import { compact, isObject } from "./fields.js";

/** A range of forgotten events can be very long. Above this length the line only names its ends. */
const LISTED = 10_000;

const ACTIONS = {
  null: () => "No action",
  run: ({ command }) => `Running command: ${command}`,
  kill: ({ command_id }) => `Killing command: ${command_id}`,
  run_ipython: ({ code }) => `Running Python code interactively: ${code}`,
  browse: ({ url }, isOld) => `${isOld ? "Browsing" : "I am browsing the"} URL: ${url}`,
  browse_interactive: ({ browser_actions: code }, isOld) =>
    isOld
      ? `Executing browser actions: ${code}`
      : `I am interacting with the browser:\n\`\`\`\n${code}\n\`\`\``,
  read: ({ path }) => `Reading file: ${path}`,
  write: ({ path }) => `Writing file: ${path}`,
  edit: () => "",
  recall: ({ query }, isOld) =>
    isOld
      ? `Let me dive into my memories to find what you're looking for! Searching for: '${query}'. This might take a moment.`
      : `Retrieving content for: ${[...query].slice(0, 50).join("")}`,
  add_task: ({ goal }) => `Added task: ${goal}`,
  modify_task: ({ task_id, state }) => `Set task ${task_id} to ${state}`,
  think: ({ thought }) => `I am thinking...: ${thought}`,
  talk: ({ content }) => content,
  finish: ({ thought }) => thought || "All done! What's next on the agenda?",
  reject: ({ outputs }) => rejection(outputs),
  delegate: ({ agent }) => asking(agent),
  message: ({ content }) => content,
  change_agent_state: ({ agent_state }) => `Agent state changed to ${agent_state}`,
  system: ({ content }) => content,
  condensation,
  condensation_request: () => "Requesting a condensation of the conversation history.",
  call_tool_mcp: ({ name, arguments: values }) =>
    `I am interacting with the MCP server with name:\n\`\`\`\n${name}\n\`\`\`\nand arguments:\n\`\`\`\n${repr(values)}\n\`\`\``,
  task_tracking: ({ task_list: { length } }) => {
    if (length === 0) return "Clearing the task list.";
    return length === 1 ? "Managing 1 task item." : `Managing ${length} task items.`;
  },
  loop_recovery: () => "",
  delegate_task: ({ agent }) => asking(agent),
  delegate_all: ({ delegates }) => asking(delegates.map(({ agent }) => agent).join(", ")),
};

const said = ({ content }) => content;

const OBSERVATIONS = {
  null: () => "No observation",
  run: ({ command, metadata }) =>
    `Command \`${command}\` executed with exit code ${metadata.exit_code}.`,
  run_ipython: () => "Code executed in IPython cell.",
  browse: ({ url }) => `Visited ${url}`,
  read: ({ path }) => `I read the file ${path}.`,
  write: ({ path }) => `I wrote to the file ${path}.`,
  edit: ({ path }) => `I edited the file ${path}.`,
  recall: ({ recall_type: type }, isOld) => {
    if (isOld) return "The agent recalled memories.";
    return type === "workspace_context" ? "Added workspace context" : "Added microagent knowledge";
  },
  delegate: () => "",
  success: said,
  error: said,
  agent_state_changed: () => "",
  user_rejected: said,
  condense: said,
  think: said,
  mcp: said,
  download: ({ file_path }) => `Downloaded the file at location: ${file_path}`,
  task_tracking: said,
  loop_detection: () => "",
};

/** Returns the line of an action or an observation. */
export const message = ({ isAction, kind, fields }, era) =>
  (isAction ? ACTIONS : OBSERVATIONS)[kind](fields, era === "2024-07");

const asking = (agents) => `I'm asking ${agents} for help with this task.`;

function rejection(outputs) {
  const line = "Task is rejected by the agent.";
  if (!Object.hasOwn(outputs, "reason")) return line;
  const { reason } = outputs;
  return `${line} Reason: ${typeof reason === "string" ? reason : compact(reason)}`;
}

function condensation(fields) {
  if (fields.summary) return `Summary: ${fields.summary}`;
  const { forgotten_events_start_id: start, forgotten_events_end_id: end } = fields;
  const ids = fields.forgotten_event_ids ?? rangeOf(start, end);
  return `Condenser is dropping the events: [${ids.join(", ")}].`;
}

function rangeOf(start, end) {
  if (end - start > LISTED) return [start, "…", end];
  return Array.from({ length: Math.max(0, end - start + 1) }, (_, n) => start + n);
}

/** Returns a value as Python's `repr`, with sorted keys. */
function repr(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return reprNumber(value);
  if (typeof value === "string") return reprText(value);
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`;
  if (!isObject(value)) return "None";
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${reprText(key)}: ${repr(value[key])}`).join(", ")}}`;
}

function reprNumber(number) {
  if (Number.isInteger(number) && Math.abs(number) < 2 ** 64) return String(BigInt(number));
  const [digits, exponent] = number.toExponential().split("e");
  // Python has an exponent of two digits below 10^-4, and from 10^16.
  if (exponent >= -4 && exponent < 16) return String(number);
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function reprText(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = [...text].map((letter) => {
    if (letter === quote) return `\\${letter}`;
    if (/[\0-\x1f\x7f-\xa0\xad]/.test(letter) && ESCAPES[letter] === undefined) {
      return `\\x${letter.charCodeAt(0).toString(16).padStart(2, "0")}`;
    }
    return ESCAPES[letter] ?? letter;
  });
  return `${quote}${escaped.join("")}${quote}`;
}
