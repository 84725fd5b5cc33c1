// The outcome of a tool, and the outcomes that control the task of the calling agent.

import { wellFormedJson } from "./well_formed.js";

/** The result of a tool call. Each part may be absent. */
export class Outcome {
  constructor({ content, value, attachments = [], followUpCalls = [] } = {}) {
    this.content = content;
    this.value = value;
    this.attachments = attachments;
    this.followUpCalls = followUpCalls;
  }

  static done(content) {
    return next("done", { content });
  }

  static agentDone(content, calls) {
    return next("agent_done", { content, tools: calls.map(listed) });
  }

  static result(values) {
    return next("result", values);
  }

  static finalResult(values) {
    return next("final_result", values);
  }

  static pass() {
    return next("pass", {});
  }

  static donePass() {
    return next("done_pass", {});
  }

  static forward(task) {
    return next("forward", { agent: task });
  }

  static send(to, content) {
    return next("send", { to, content });
  }

  static agentSend(to, content, calls = []) {
    return next("agent_send", { to, content, tools: calls.map(listed) });
  }

  static recipientMessage(recipient, content) {
    return next("recipient_message", { intended_recipient: recipient, content });
  }

  static rewind(n, content) {
    return next("rewind", { n, content });
  }
}

const listed = ({ name, arguments: values = {} }) => ({ name, arguments: values });

const next = (name, values) => new Outcome({ followUpCalls: [{ name, arguments: values }] });

/**
 * Returns the outcome of what `run` returned. With an output schema every result is structured;
 * without one all but a text is.
 */
export function outcomeOf(result, hasOutputSchema) {
  if (result instanceof Outcome) return result;
  if (hasOutputSchema) return new Outcome({ value: result, content: wellFormedJson(result) });
  if (result === undefined || result === null) return new Outcome();
  // JSON has no value for the other kinds, such as BigInt and NaN.
  const isJson = ["object", "boolean"].includes(typeof result) || Number.isFinite(result);
  if (isJson) return new Outcome({ value: result, content: wellFormedJson(result) });
  return new Outcome({ content: String(result) });
}
