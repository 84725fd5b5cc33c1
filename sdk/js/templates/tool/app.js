// <NAME>: counts the words of texts.

import { s, tool } from "@conclave/sdk";

export const count = tool({
  name: "count",
  description: "Counts the words of a text. Use it when the user asks how long a text is.",
  input: s.object({
    text: s.string("The text."),
    shortest: s.integer("Words shorter than this do not count.", { minimum: 1 }).default(1),
  }),
  idempotent: true,
  run({ text, shortest }) {
    return text.split(/\s+/).filter((word) => word !== "" && word.length >= shortest).length;
  },
});
