// Judges.

import { define } from "./kind.js";

/**
 * Returns a judge with any of `valid(answer, view)`, `done(answer, view)`, `feedback(answer, view)`
 * and `result(ending, view)`. A function that is absent, or returns nothing, leaves the decision to the
 * host.
 */
export function judge(definition) {
  const made = define("judge", definition, [], ["valid", "done", "feedback", "result"]);
  if (!made.valid && !made.done && !made.result) {
    throw new TypeError("judge: one of the functions valid, done and result is needed");
  }
  return made;
}
