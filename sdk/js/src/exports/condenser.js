// The interface `condenser`.

import { settled } from "../kind.js";
import { View } from "../view.js";
import { u64 } from "#u64";
import { optional } from "../wire.js";
import { boundary } from "./boundary.js";

export const condenser = ({ condenser: [one] }) => ({
  condense: (reason) =>
    boundary(() =>
      optional(settled("condenser: condense", one.condense(reason, new View())), condensationTo),
    ),
});

const condensationTo = ({ forget = [], mask = [], summary }) => ({
  forget: forget.map(([start, end]) => ({ start: u64(start), end: u64(end) })),
  mask: mask.map(({ index, text }) => ({ index: u64(index), text })),
  summary,
});
