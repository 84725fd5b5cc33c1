// The interface `gate`.

import { settled } from "../kind.js";
import { optional } from "../wire.js";
import { boundary, expect } from "./boundary.js";

export const gate = ({ gate: [one] }) => ({
  check: (input) =>
    boundary(() => {
      const verdict = settled("gate: check", one.check(inputFrom(input)));
      const isFit = ["allow", "modify", "block"].includes(verdict?.tag);
      expect("gate: check", isFit, "allow(), modify(text) or block(reason)");
      return verdict.tag === "allow" ? verdict : { tag: verdict.tag, val: String(verdict.val) };
    }),
});

const inputFrom = ({ point, room, channel, fromTask, toTask, text, metadata }) => ({
  point,
  room,
  channel: optional(channel),
  fromTask: optional(fromTask),
  toTask: optional(toTask),
  text,
  metadata: JSON.parse(metadata),
});
