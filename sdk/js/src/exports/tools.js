// The interface `tools`, from the plugin's tools and toolsets.

import { InvalidArguments, Denied, Unavailable } from "../errors.js";
import { settled } from "../kind.js";
import { callOf, specOf } from "../tool.js";
import { blobTo, extraTo, json, optional, toolCallTo } from "../wire.js";
import { u64 } from "#u64";
import { boundary, denied, other } from "./boundary.js";

export function tools({ tool: single = [], toolset: sets = [] }) {
  const byName = new Map(single.map((one) => [one.spec.name, one]));
  const listed = () =>
    sets.map((set) => ({ set, specs: settled("toolset: list", set.list()).map(specOf) }));
  return {
    listTools: () =>
      boundary(
        () =>
          [...single.map(({ spec }) => spec), ...listed().flatMap(({ specs }) => specs)].map(
            specTo,
          ),
        toolError,
      ),
    call: (name, text) =>
      boundary(() => {
        const values = JSON.parse(text);
        const one = byName.get(name);
        if (one) return outcomeTo(one.callChecked(values));
        const found = sets.length === 1 ? sets[0] : setWith(listed(), name);
        if (!found) throw new Error(`there is no tool ${name}`);
        return outcomeTo(callOf(found, name, values));
      }, toolError),
  };
}

const setWith = (listed, name) =>
  listed.find(({ specs }) => specs.some((spec) => spec.name === name))?.set;

function specTo({
  name,
  description,
  input,
  output,
  idempotent,
  title,
  resultTokens,
  retainedTokens,
  examples,
}) {
  return {
    name,
    description,
    inputSchema: json(input),
    outputSchema: optional(output, json),
    idempotent,
    extra: extraTo({
      title,
      "result-tokens": resultTokens,
      "retained-tokens": retainedTokens,
      examples: examples?.map(({ thought = null, arguments: values }) => ({
        thought,
        arguments: values,
      })),
    }),
  };
}

const outcomeTo = ({ content, value, attachments, followUpCalls }) => ({
  content: optional(content, String),
  value: optional(value, json),
  attachments: attachments.map(blobTo),
  followUpCalls: followUpCalls.map(toolCallTo),
});

function toolError(error) {
  if (error instanceof InvalidArguments) return { tag: "invalid-arguments", val: error.message };
  if (error instanceof Denied) return denied(error);
  if (error instanceof Unavailable) return unavailable(error);
  return other(error);
}

export const unavailable = ({ retryAfterMs }) =>
  retryAfterMs === undefined
    ? { tag: "unavailable" }
    : { tag: "unavailable", val: u64(retryAfterMs) };
