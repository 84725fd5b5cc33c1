// <NAME>: answers questions with facts of its settings, and asks its model the rest.

import { agent, config, finish, model, replyWith, s } from "@conclave/sdk";

const settings = s.object({ facts: s.record(s.string()).default({}) });

export const desk = agent({
  // Is asked before the model. Without an answer the message is left to it.
  respond(view) {
    // A model's text is an answer already, and a tool's result is for the model.
    if (view.pending?.sender !== "user") return undefined;
    const { facts } = config.get(settings);
    const name = Object.keys(facts).find((one) => view.pending.content.includes(one));
    return name === undefined ? undefined : finish(facts[name]);
  },

  step() {
    const answer = model.answer();
    // Calls of tools are carried out by the host; the next step reads their results.
    return answer.toolCalls.length === 0 ? finish(answer.content ?? "") : replyWith(answer);
  },
});
