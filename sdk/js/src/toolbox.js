// Calls of other tools, for the agent that called this one.

import * as host from "#host/toolbox";

import { fromHost } from "./errors.js";
import { wellFormed } from "./well_formed.js";
import { json, optional } from "./wire.js";

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
  const sent = requests.map(({ name, arguments: args = {} }) => ({
    name: wellFormed(name),
    arguments: json(args),
  }));
  return host.callAll(sent).map((answer, n) => answerFrom(requests[n].name, answer));
}

function answerFrom(name, { tag, val }) {
  if (tag === "err") return fromHost(name, { payload: val });
  return { content: optional(val.content), value: optional(val.value, JSON.parse) };
}
