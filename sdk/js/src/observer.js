// Observers.

import { define } from "./kind.js";

/** Returns an observer: `observe(events)` takes events of one room, in order. */
export function observer(definition) {
  return define("observer", definition, ["observe"]);
}

/** Returns the idempotency key of an event, such as `3f2a91c0:17.0`. */
export const eventKey = ({ room, seq, index }) => `${room}:${seq}.${index}`;
