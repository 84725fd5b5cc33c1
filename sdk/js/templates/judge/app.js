// <NAME>: takes only answers with a year, and makes the year the result.

import { judge } from "@conclave/sdk";

const year = (text) => text.match(/\b\d{4}\b/)?.[0];

export const years = judge({
  valid({ responder, message }) {
    // Only the texts of the model are judged: a call answers nothing yet.
    if (responder !== "llm" || message.toolCalls.length > 0) return undefined;
    return year(message.content) !== undefined;
  },

  // Without `done`, the host decides which answer ends the task.

  result: ({ result }) => year(result.text),
});
