// The facts about a tool call that a test has written.

import { host } from "./current.js";

const fact = (name) => () => host().call?.[name] ?? absent();

function absent() {
  throw new Error("this is no tool call: pass `call` to fakeHost()");
}

export const callId = fact("callId");
export const attempt = fact("attempt");
export const taskName = fact("taskName");
export const roomId = fact("roomId");
export const caller = fact("caller");
export const deadlineMs = fact("deadlineMs");
export const traceparent = fact("traceparent");
