// The turn that a step returns, and the verbs of an agent that talks. `act.js` has those of one
// that acts.

/** Returns a turn with this action. `options` are those of every verb. */
export function turn(action, { thought = "", waitForUser = false, turns, extra = {}, text } = {}) {
  const limits = turns === undefined ? {} : { turns };
  const history = text === undefined ? {} : { text };
  const all = { ...limits, ...extra, ...history };
  return { action, thought, waitForResponse: waitForUser, extra: all };
}

/** Sets the text that the agent's history holds in place of the action's JSON. */
export const withText = (agentTurn, text) => ({
  ...agentTurn,
  extra: { ...agentTurn.extra, text },
});

/** Says something to the next responder, or to `options.to`. */
export function say(content, { to, attachments, ...options } = {}) {
  return turn(reply({ content, recipient: to, attachments }), options);
}

/** Calls a tool; its result arrives with the next step. */
export function callTool(name, values = {}, options) {
  return callTools([{ name, arguments: values }], options);
}

/** Calls tools; independent calls run at the same time. */
export function callTools(calls, { to, content, ...options } = {}) {
  return turn(reply({ content, toolCalls: calls, recipient: to }), options);
}

/** Returns the turn of a completion: its text, its tool calls, and its id. */
export function replyWith({ id, content, toolCalls }, options) {
  return turn(reply({ completion: id, content, toolCalls }), options);
}

/** Ends the task with its answer: a text, or any other value as JSON. */
export function finish(answer, options) {
  return turn({ tag: "finish", val: answer }, options);
}

/** Ends the task without an answer. */
export function reject(reason, options) {
  return turn({ tag: "reject", val: reason }, options);
}

function reply({ completion, content, toolCalls = [], recipient, attachments = [] }) {
  return { tag: "reply", val: { completion, content, toolCalls, recipient, attachments } };
}
