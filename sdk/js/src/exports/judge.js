// The interface `judge`.

import * as host from "#host/judge-feedback";

import { settled } from "../kind.js";
import { View } from "../view.js";
import { json, messageFrom, optional, parsed } from "../wire.js";
import { boundary } from "./boundary.js";

export const judge = ({ judge: [one] }) => ({
  rule: (answer) =>
    boundary(() => {
      const view = new View();
      const given = { ...answer, message: messageFrom(answer.message) };
      const valid = decision("valid", one.valid?.(given, view));
      // An answer that is refused ends nothing, so `done` is not asked about it.
      const done = valid === false ? undefined : decision("done", one.done?.(given, view));
      if (valid === false || done === false) {
        const words = settled("judge: feedback", one.feedback?.(given, view));
        if (words !== undefined && words !== null) host.explain(String(words));
      }
      return { valid, done };
    }),
  conclude: ({ status, reason, result }) =>
    boundary(() => {
      const ending = { status, reason, result: { text: result.text, value: parsed(result.value) } };
      const own = settled("judge: result", one.result?.(ending, new View()));
      return optional(own, resultTo);
    }),
});

function decision(name, value) {
  const settledValue = settled(`judge: ${name}`, value);
  return optional(settledValue, Boolean);
}

const resultTo = (result) =>
  typeof result === "string"
    ? { text: result, value: undefined }
    : { text: String(result.text ?? ""), value: optional(result.value, json) };
