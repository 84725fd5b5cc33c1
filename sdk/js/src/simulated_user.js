// Simulated users.

import { define } from "./kind.js";

/** Returns a simulated user: `answer(question, view)` returns a text, or nothing for no answer. */
export function simulatedUser(definition) {
  return define("simulated-user", definition, ["answer"]);
}
