// Values of the contract, as plugins see them: JSON texts become values, absent options become
// `undefined`, and 64-bit integers become numbers.

import { u64 } from "#u64";

import { wellFormedJson } from "./well_formed.js";

export const optional = (value, convert = (one) => one) =>
  value === undefined || value === null ? undefined : convert(value);

/** Returns JSON text. `undefined`, which JSON does not have, is `null`. */
export const json = (value) => wellFormedJson(value) ?? "null";

export const parsed = (text) => optional(text, JSON.parse);

export const extraFrom = (list) =>
  Object.fromEntries(list.map(({ key, value }) => [key, JSON.parse(value)]));

export const extraTo = (object = {}) =>
  Object.entries(object)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ({ key, value: json(value) }));

export const blobFrom = ({ sha256, mediaType, length, name }) => ({
  sha256,
  mediaType,
  length: Number(length),
  name: optional(name),
});

export const blobTo = ({ sha256, mediaType, length, name }) => ({
  sha256,
  mediaType,
  length: u64(length),
  name,
});

export const toolCallFrom = ({ id, name, arguments: text }) => ({
  id,
  name,
  arguments: JSON.parse(text),
});

/** The host assigns the id of a call without one. */
export const toolCallTo = ({ id = "", name, arguments: values = {} }) => ({
  id,
  name,
  arguments: json(values),
});

export function messageFrom(message) {
  return {
    seq: Number(message.seq),
    sender: message.sender,
    senderName: message.senderName,
    recipient: optional(message.recipient),
    content: message.content,
    toolCalls: message.toolCalls.map(toolCallFrom),
    toolResults: message.toolResults,
    attachments: message.attachments.map(blobFrom),
    labels: message.labels,
    extra: extraFrom(message.extra),
  };
}

export function draftTo({
  role = "user",
  content = "",
  toolCalls = [],
  toolResults = [],
  attachments = [],
}) {
  return {
    role,
    content,
    toolCalls: toolCalls.map(toolCallTo),
    toolResults,
    attachments: attachments.map(blobTo),
  };
}

/** Returns the numbers of a record whose fields are all integers, some of them optional. */
export const numbersFrom = (record) =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, optional(value, Number)]));

/** The cases of an action whose payload is not the same on both sides, by direction. */
const ACTIONS = {
  reply: {
    from: (reply) => ({
      completion: optional(reply.completion),
      content: optional(reply.content),
      toolCalls: reply.toolCalls.map(toolCallFrom),
      recipient: optional(reply.recipient),
      attachments: reply.attachments.map(blobFrom),
    }),
    to: ({ toolCalls = [], attachments = [], ...rest }) => ({
      ...rest,
      toolCalls: toolCalls.map(toolCallTo),
      attachments: attachments.map(blobTo),
    }),
  },
  kill: { from: Number, to: u64 },
  read: {
    from: (read) => ({ ...read, start: Number(read.start), end: Number(read.end) }),
    to: (read) => ({ ...read, start: u64(read.start), end: u64(read.end) }),
  },
  write: {
    from: (write) => ({ ...write, start: Number(write.start), end: Number(write.end) }),
    to: (write) => ({ ...write, start: u64(write.start), end: u64(write.end) }),
  },
  "add-task": {
    from: (task) => ({ ...task, subtasks: JSON.parse(task.subtasks) }),
    to: (task) => ({ ...task, subtasks: json(task.subtasks) }),
  },
  delegate: {
    from: ({ task, inputs }) => ({ task, inputs: JSON.parse(inputs) }),
    to: ({ task, inputs }) => ({ task, inputs: json(inputs) }),
  },
  "delegate-task": {
    from: (task) => ({
      ...task,
      context: JSON.parse(task.context),
      brief: optional(task.brief),
      structured: optional(task.structured, ({ schema, retries }) => ({
        schema: parsed(schema),
        retries,
      })),
      resultForm: optional(task.resultForm),
      notify: optional(task.notify),
      deadlineMs: optional(task.deadlineMs, Number),
      turns: optional(task.turns),
      onClose: optional(task.onClose),
      key: optional(task.key),
    }),
    to: (task) => ({
      ...task,
      context: json(task.context),
      structured: optional(task.structured, ({ schema, retries }) => ({
        schema: optional(schema, json),
        retries,
      })),
      deadlineMs: optional(task.deadlineMs, u64),
    }),
  },
  finish: { from: JSON.parse, to: json },
  reject: { from: JSON.parse, to: json },
  custom: {
    from: (custom) => ({ name: custom.name, arguments: JSON.parse(custom.arguments) }),
    to: (custom) => ({ name: custom.name, arguments: json(custom.arguments) }),
  },
};

const converted = (cases, direction, { tag, val }) => {
  const convert = cases[tag]?.[direction];
  const value = convert ? convert(val) : val;
  return value === undefined || value === null ? { tag } : { tag, val: value };
};

export const actionFrom = (action) => converted(ACTIONS, "from", action);

export const actionTo = (action) => converted(ACTIONS, "to", action);

export function turnTo({ action, thought = "", waitForResponse = false, extra }) {
  return { action: actionTo(action), thought, waitForResponse, extra: extraTo(extra) };
}

const OBSERVATIONS = {
  command: { from: (output) => ({ ...output, commandId: Number(output.commandId) }) },
  cell: { from: ([code, output]) => ({ code, output }) },
  file: { from: ([path, content]) => ({ path, content }) },
  delegated: { from: ([task, outputs]) => ({ task, outputs: JSON.parse(outputs) }) },
  tool: { from: (output) => ({ ...output, value: parsed(output.value) }) },
  custom: { from: (custom) => ({ ...custom, extras: JSON.parse(custom.extras) }) },
};

export const observationFrom = (observation) => converted(OBSERVATIONS, "from", observation);

export const pastActionFrom = ({ action, observation, seq }) => ({
  action: optional(action, actionFrom),
  observation: optional(observation, observationFrom),
  seq: Number(seq),
});
