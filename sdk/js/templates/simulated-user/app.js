// <NAME>: answers questions with facts of its settings, and leaves when there is none to give.

import { config, s, simulatedUser } from "@conclave/sdk";

const settings = s.object({ facts: s.record(s.string()).default({}) });

export const guest = simulatedUser({
  answer(question) {
    const { facts } = config.get(settings);
    const name = Object.keys(facts).find(
      (name) => question.includes("?") && question.includes(name),
    );
    // A user's `quit` ends the task.
    return name === undefined ? "quit" : facts[name];
  },
});
