// The interface `simulated-user`.

import { settled } from "../kind.js";
import { View } from "../view.js";
import { optional } from "../wire.js";
import { boundary } from "./boundary.js";

export const simulatedUser = ({ "simulated-user": [one] }) => ({
  answer: (question) =>
    boundary(() =>
      optional(settled("simulatedUser: answer", one.answer(question, new View())), String),
    ),
});
