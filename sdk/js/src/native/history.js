// The conversation around a tool call, as a test has written it.

import { denies, fails, host } from "./current.js";

const task = () => host().grants.history ?? denies("history", "");

export const callingMessage = () =>
  task().pending() ?? fails({ tag: "other", val: "the task has no pending message" });

export const inputs = () => task().inputs();

export const length = () => task().historyLength();

export const messages = (start, count) => task().history(start, count);
