// The facts about the current tool call. Outside of a tool call they are not available.

import * as host from "#host/call";

export const callId = () => host.callId();
export const attempt = () => host.attempt();
export const taskName = () => host.taskName();
export const roomId = () => host.roomId();
export const caller = () => host.caller();
export const deadlineMs = () => Number(host.deadlineMs());
export const traceparent = () => host.traceparent();
