// Other tools, whose answers a test has written.

import { denial, host } from "./current.js";

const granted = () => host().grants.tools;

export const listTools = () =>
  [...(granted()?.keys() ?? [])].map((name) => ({
    name,
    description: "",
    inputSchema: '{"type":"object"}',
    outputSchema: undefined,
  }));

export const callAll = (requests) =>
  requests.map(({ name, arguments: args }) => {
    const answer = granted()?.get(name);
    if (answer === undefined) {
      return { tag: "err", val: { tag: "denied", val: denial("tools", name) } };
    }
    host().calls.push({ name, arguments: JSON.parse(args) });
    if (answer instanceof Error) {
      return { tag: "err", val: { tag: "failed", val: answer.message } };
    }
    const isText = typeof answer === "string";
    const val = isText
      ? { content: answer, value: undefined }
      : { content: undefined, value: JSON.stringify(answer) };
    return { tag: "ok", val };
  });
