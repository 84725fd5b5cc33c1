// <NAME>: answers a question with its model, and ends its task with the answer.

import { agent, finish, model, replyWith } from "@conclave/sdk";

export const desk = agent({
  // Each step runs in a fresh instance. What the agent must remember is in its history
  // (`view.history`), its `scratch` or its `kv`.
  step(view) {
    if (!view.pending?.content.trim()) return finish("There is no question.");
    // The whole history and the task's system text. A failure becomes an observation, and the agent
    // may try again.
    const answer = model.answer();
    // Calls of tools are carried out by the host; the next step reads their results.
    return answer.toolCalls.length === 0 ? finish(answer.content ?? "") : replyWith(answer);
  },
});
