// The conversation of the task whose agent called the tool. It needs the `history` grant.

import * as host from "#host/history";

import { ask } from "./errors.js";
import { History } from "./history.js";
import { messageFrom } from "./wire.js";

export const callingMessage = () => messageFrom(ask("history", () => host.callingMessage()));

export const inputs = () => JSON.parse(ask("history", () => host.inputs()));

export function messages() {
  const length = ask("history", () => host.length());
  return new History(length, (start, count) => ask("history", () => host.messages(start, count)));
}
