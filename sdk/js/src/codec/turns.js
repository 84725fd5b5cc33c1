// Conversions between turns and the actions of a log. They lose nothing that both can hold; actions
// without a case in the contract travel as `custom`.

import { start } from "../background.js";
import { InvalidArguments } from "../errors.js";
import { callTool, callTools, finish, reject, say, turn } from "../turn.js";
import { json } from "../wire.js";
import { action, readEvent, takesThought, writeEvent } from "./events.js";
import { isObject, isWhole, wholeIn } from "./fields.js";
import { valueIn } from "./text.js";

const STATES = ["open", "in_progress", "completed", "verified", "abandoned"];

/**
 * Parses an action that a model wrote as JSON, alone or surrounded by words. A list of `message` and
 * `call_tool_mcp` becomes one reply. The error names the problem and the remedy, for the model.
 */
export const turnFromJson = (text) => turnFromValue(valueIn(text));

/** Does the same for JSON that is parsed already. */
export function turnFromValue(value) {
  if (Array.isArray(value)) return replyOf(value);
  const event = readEvent(value);
  if (!event.isAction) {
    throw new InvalidArguments("an observation was written where an action is wanted");
  }
  return turnOf(event);
}

/** Returns a turn in the form of an era. Several calls are several actions, and so a list. */
export function turnToJson(agentTurn, era = "2025-11") {
  const custom = rawCustom(agentTurn);
  if (custom !== undefined && !isKnown(custom)) return custom;
  const forms = eventsOf(agentTurn).map((event) => writeEvent(event, era, { source: "agent" }));
  return forms.length === 1 ? forms[0] : forms;
}

/** Returns the events of a turn. A custom action that no log knows gives none. */
export function eventsOf(agentTurn) {
  const { action: done, thought = "", waitForResponse = false } = agentTurn;
  const custom = rawCustom(agentTurn);
  if (custom !== undefined) return isKnown(custom) ? [readEvent(custom)] : [];
  const { tag, val } = done;
  if (tag === "reply") return said(val, thought, waitForResponse);
  if (tag === "talk" && waitForResponse) {
    return [action("message", { content: val, wait_for_response: true })];
  }
  if (!Object.hasOwn(WRITTEN, tag)) throw new TypeError(`the contract has no action ${tag}`);
  const [kind, fields] = WRITTEN[tag](val);
  const event = action(kind, fields);
  if (tag !== "think" && Object.hasOwn(event.fields, "thought")) event.fields.thought = thought;
  return [event];
}

/** The kind and the fields of each action. */
const WRITTEN = {
  null: () => ["null", {}],
  run: ({ command, background = false }) => ["run", { command, background }],
  kill: (id) => ["kill", { command_id: id }],
  "run-cell": ({ code, kernelInitCode = "" }) => [
    "run_ipython",
    { code, kernel_init_code: kernelInitCode },
  ],
  browse: (url) => ["browse", { url }],
  read: ({ path, start: first, end }) => ["read", { path, start: first, end }],
  write: ({ path, content, start: first, end }) => ["write", { path, content, start: first, end }],
  recall: (query) => ["recall", { query }],
  "add-task": ({ parent, goal, subtasks }) => {
    const below = plain(subtasks);
    return ["add_task", { parent, goal, subtasks: Array.isArray(below) ? below : [] }];
  },
  "modify-task": ({ taskId, state }) => [
    "modify_task",
    { task_id: taskId, state: state.replace("-", "_") },
  ],
  delegate: ({ task, inputs }) => ["delegate", { agent: task, inputs: objectOf(inputs) }],
  "delegate-task": ({ worker, description, context, shareChannels = [] }) => [
    "delegate_task",
    {
      agent: worker,
      task: description,
      context: objectOf(context),
      share_channels: shareChannels,
    },
  ],
  think: (thought) => ["think", { thought }],
  talk: (content) => ["talk", { content }],
  // A text is the answer itself: 2025-11 has a field for it, 2024-07 finds it among the outputs.
  finish: (outputs) => [
    "finish",
    {
      final_thought: typeof outputs === "string" ? outputs : "",
      outputs: outcome(outputs, "content"),
    },
  ],
  reject: (outputs) => ["reject", { outputs: outcome(outputs, "reason") }],
};

function said({ content, toolCalls = [] }, thought, waits) {
  const events = [];
  if ((content ?? undefined) !== undefined || toolCalls.length === 0) {
    events.push(action("message", { content: content ?? "", wait_for_response: waits }));
  }
  for (const { name, arguments: values } of toolCalls) {
    events.push(action("call_tool_mcp", { name, arguments: objectOf(values), thought }));
  }
  return events;
}

/** Returns a custom action unchanged, with its thought, if any, among its arguments. */
function rawCustom({ action: { tag, val }, thought }) {
  if (tag !== "custom") return undefined;
  const args = objectOf(val.arguments);
  if (thought && takesThought(val.name)) args.thought = thought;
  return { action: val.name, args };
}

function isKnown(form) {
  try {
    readEvent(form);
    return true;
  } catch {
    return false;
  }
}

const plain = (value) => JSON.parse(json(value));

function objectOf(value) {
  const object = plain(value);
  return isObject(object) ? object : {};
}

/** Returns outputs as an object; another value becomes the value of that key. */
function outcome(outputs, key) {
  const value = plain(outputs);
  if (value === null) return {};
  return isObject(value) ? value : { [key]: value };
}

function turnOf(event) {
  const { kind, fields } = event;
  const { thought = "" } = fields;
  if (Object.hasOwn(TURNS, kind)) return TURNS[kind](fields, { thought });
  const [tag, val] = READ[kind]?.(fields) ?? [];
  if (tag === undefined) return customOf(event);
  return turn(val === undefined ? { tag } : { tag, val }, { thought });
}

/** The turns of the kinds that are more than an action with its thought. */
const TURNS = {
  think: ({ thought }) => turn({ tag: "think", val: thought }),
  message: messageOf,
  call_tool_mcp: ({ name, arguments: values }, options) => callTool(name, values, options),
  finish: finished,
  reject: ({ outputs }, options) => {
    const isReason = Object.keys(outputs).length === 1 && typeof outputs.reason === "string";
    return reject(isReason ? outputs.reason : outputs, options);
  },
  delegate_task: ({ agent, task, context, share_channels: shareChannels }, options) =>
    start(agent, task, { context, shareChannels, ...options }),
};

/** The case and the value of each kind for which the contract has one. */
const READ = {
  null: () => ["null"],
  run: (fields) =>
    isPlainRun(fields)
      ? ["run", { command: fields.command, background: fields.background }]
      : undefined,
  kill: ({ command_id: id }) => ["kill", commandId(id)],
  run_ipython: ({ code, kernel_init_code: kernelInitCode }) => [
    "run-cell",
    { code, kernelInitCode },
  ],
  browse: ({ url }) => ["browse", url],
  read: ({ path, start: first, end, view_range: range }) =>
    range === null ? ["read", { path, start: first, end }] : undefined,
  write: ({ path, content, start: first, end }) => ["write", { path, content, start: first, end }],
  recall: ({ query }) => ["recall", query],
  add_task: ({ parent, goal, subtasks }) => ["add-task", { parent, goal, subtasks }],
  modify_task: ({ task_id: taskId, state }) => [
    "modify-task",
    { taskId: String(taskId), state: stateOf(state) },
  ],
  delegate: ({ agent, inputs }) => ["delegate", { task: agent, inputs }],
  talk: ({ content }) => ["talk", content],
};

/** The contract's own case has no place for the fields that 2025-11 adds to a command. */
const isPlainRun = ({ command, background, thought, ...rest }) =>
  json(action("run", { command, background, thought }).fields) ===
  json(action("run", { ...rest, command, background, thought }).fields);

function customOf(event) {
  const { thought, ...args } = writeEvent(event, "2025-11").args;
  return turn({ tag: "custom", val: { name: event.kind, arguments: args } }, { thought });
}

function messageOf({ content, wait_for_response: waitForUser, file_urls, image_urls }) {
  const extra = {};
  if (file_urls !== null) extra["file-urls"] = file_urls;
  if (image_urls !== null) extra["image-urls"] = image_urls;
  return say(content, { waitForUser, extra });
}

function finished({ outputs, final_thought: answer }, options) {
  const names = Object.keys(outputs);
  const isAnswer = names.length === 0 || (names.length === 1 && outputs.content === answer);
  if (answer !== "" && isAnswer) return finish(answer, options);
  const extra = answer === "" ? {} : { "final-thought": answer };
  return finish(outputs, { ...options, extra });
}

function commandId(id) {
  const number = typeof id === "string" ? wholeIn(id) : id;
  if (isWhole(number)) return number;
  throw new InvalidArguments(`kill: \`command_id\` must be a number, and is ${id}`);
}

function stateOf(name) {
  if (STATES.includes(name)) return name.replace("_", "-");
  throw new InvalidArguments(
    `modify_task: there is no state \`${name}\`. Known are: ${STATES.join(", ")}.`,
  );
}

function replyOf(forms) {
  const replies = forms.map((form) => {
    const { tag, val } = turnFromValue(form).action;
    if (tag === "reply") return val;
    throw new InvalidArguments(
      "only `message` and `call_tool_mcp` can stand in a list: write one action at a time",
    );
  });
  const texts = replies.map(({ content }) => content).filter((content) => content !== undefined);
  const content = texts.length > 0 ? texts.join("\n") : undefined;
  return callTools(
    replies.flatMap(({ toolCalls }) => toolCalls),
    { content },
  );
}
