// The progress of a long call, for people who wait.

import * as host from "#host/progress";
import { u64 } from "#u64";

import { wellFormed } from "./well_formed.js";
import { optional } from "./wire.js";

/** Reports `done` of `total` units; `total` is `undefined` if it is unknown. */
export function report(done, total, message = "") {
  host.report(u64(done), optional(total, u64), wellFormed(message));
}
