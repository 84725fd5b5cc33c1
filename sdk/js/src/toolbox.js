// Calls of other tools, for the agent that called this one.

import * as host from "#host/toolbox";

import { fromHost } from "./errors.js";
import { wellFormed } from "./well_formed.js";
import { json, optional } from "./wire.js";

/** Calls that the host runs at the same time for one call of a tool. */
const AT_ONCE = 64;

export const tools = () =>
  host.listTools().map(({ name, description, inputSchema, outputSchema }) => ({
    name,
    description,
    inputSchema: JSON.parse(inputSchema),
    outputSchema: optional(outputSchema, JSON.parse),
  }));

export function call(name, args = {}) {
  const [answer] = callAll([{ name, arguments: args }]);
  if (answer instanceof Error) throw answer;
  return answer;
}

export function callAll(requests) {
  const sent = requests.map(sentFrom);
  const answers = [];
  for (let start = 0; start < sent.length; start += AT_ONCE) {
    answers.push(...host.callAll(sent.slice(start, start + AT_ONCE)));
  }
  return answers.map((answer, n) => answerFrom(requests[n].name, answer));
}

function sentFrom({ name, arguments: args = {}, ...others }) {
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) {
    throw new TypeError(`a request has name and arguments, and no ${unknown}`);
  }
  return { name: wellFormed(name), arguments: json(args) };
}

function answerFrom(name, { tag, val }) {
  if (tag === "err") return fromHost(name, { payload: val });
  return { content: optional(val.content), value: optional(val.value, JSON.parse) };
}
