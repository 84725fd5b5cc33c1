// Delegation to background tasks: a task of the operator's config starts in a room of its own, and
// its result comes back later. It needs the `delegate` grant.

import { callTool, turn } from "./turn.js";

export { parseAnswer } from "./answer.js";

/** Reminders to a worker that ends without its structured result, unless `retries` says otherwise. */
const RETRIES = 3;

const OPTIONS = [
  "context",
  "shareChannels",
  "brief",
  "conversationMessages",
  "wait",
  "structured",
  "deliver",
  "resultForm",
  "notify",
  "deadlineMs",
  "turns",
  "onClose",
  "key",
  "thought",
  "extra",
];

/** Returns the turn that starts a background task. */
export function start(worker, description, options = {}) {
  const unknown = Object.keys(options).find((key) => !OPTIONS.includes(key));
  if (unknown) throw new TypeError(`background.start: there is no option ${unknown}`);
  const { structured, deliver, thought, extra, ...rest } = options;
  const task = {
    worker,
    description,
    context: rest.context ?? {},
    shareChannels: rest.shareChannels ?? [],
    brief: rest.brief,
    conversationMessages: rest.conversationMessages ?? 0,
    wait: rest.wait ?? false,
    structured: structured && { schema: structured.schema, retries: structured.retries ?? RETRIES },
    deliver: deliveryOf(deliver),
    resultForm: rest.resultForm,
    notify: rest.notify,
    deadlineMs: rest.deadlineMs,
    turns: rest.turns,
    onClose: rest.onClose,
    key: rest.key,
  };
  return turn({ tag: "delegate-task", val: task }, { thought, extra });
}

function deliveryOf(deliver) {
  if (deliver === undefined) return { tag: "as-configured" };
  return deliver.strategy === undefined
    ? { tag: "inbox" }
    : { tag: "strategy", val: deliver.strategy };
}

export const status = (taskId, options) =>
  callTool("task_status", taskId === undefined ? {} : { task_id: taskId }, options);

export const cancel = (taskId, options) => callTool("cancel_task", { task_id: taskId }, options);

export const tell = (taskId, text, options) =>
  callTool("tell_task", { task_id: taskId, text }, options);
