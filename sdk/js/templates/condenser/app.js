// <NAME>: keeps the first and the last entries of a history.

import { condenser } from "@conclave/sdk";

/** Entries that are kept at the end. */
const LAST = 4;

export const recent = condenser({
  condense(reason, view) {
    const { length } = view.history;
    return length > LAST + 1 ? { forget: [[1, length - LAST]] } : undefined;
  },
});
