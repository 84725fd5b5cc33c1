// The task as it was when the call began. Reading is lazy: each property asks the host.

import * as state from "#host/state";
import { u64 } from "#u64";

import { History } from "./history.js";
import { formsOfMessage, formsOfPast } from "./codec/observations.js";
import { answerIn } from "./answer.js";
import { messageFrom, numbersFrom, optional, pastActionFrom } from "./wire.js";

export class View {
  #state;

  /** `source` has the functions of the contract's `state`. */
  constructor(source = state) {
    this.#state = source;
  }

  get taskName() {
    return this.#state.taskName();
  }

  get inputs() {
    return JSON.parse(this.#state.inputs());
  }

  get pending() {
    return optional(this.#state.pending(), messageFrom);
  }

  get history() {
    const length = Number(this.#state.historyLength());
    return new History(length, (start, count) => this.#state.history(u64(start), count));
  }

  get sinceLastStep() {
    return this.#state.sinceLastStep().map(pastActionFrom);
  }

  get observations() {
    return this.sinceLastStep.map((past) => past.observation).filter((one) => one !== undefined);
  }

  get lastObservation() {
    return this.observations.at(-1);
  }

  get errors() {
    return this.observations.map(errorText).filter((text) => text !== undefined);
  }

  get file() {
    return this.observations.findLast(({ tag }) => tag === "file")?.val;
  }

  get commandOutputs() {
    return this.observations.filter(({ tag }) => tag === "command").map(({ val }) => val);
  }

  get toolOutputs() {
    const observed = this.observations.filter(({ tag }) => tag === "tool").map(({ val }) => val);
    if (observed.length > 0) return observed;
    return (this.pending?.toolResults ?? []).map((result) => ({ ...result, value: undefined }));
  }

  get latestUserMessage() {
    return optional(this.#state.latestUserMessage());
  }

  get plan() {
    return JSON.parse(this.#state.plan());
  }

  get currentPlanNode() {
    return optional(this.#state.currentPlanNode());
  }

  get outputs() {
    return JSON.parse(this.#state.outputs());
  }

  get lastError() {
    return optional(this.#state.lastError());
  }

  get tools() {
    return this.#state.tools().map(({ inputSchema, ...tool }) => ({
      ...tool,
      inputSchema: JSON.parse(inputSchema),
    }));
  }

  get peers() {
    return this.#state.peers();
  }

  get remaining() {
    return numbersFrom(this.#state.remaining());
  }

  get metrics() {
    return numbersFrom(this.#state.metrics());
  }

  get delegateLevel() {
    return this.#state.delegateLevel();
  }

  get iteration() {
    return this.#state.iteration();
  }

  /** The host's latest answer to a delegation, or to a question about one. */
  get backgroundAnswer() {
    return answerIn(this.observations, this.pending?.content);
  }

  /** Returns the history as events of a log, in the fixed JSON form of an era. */
  events(era = "2025-11") {
    return [...this.history].flatMap((message) => formsOfMessage(message, era));
  }

  newEvents(era = "2025-11") {
    return this.sinceLastStep.flatMap((past) => formsOfPast(past, era));
  }

  tool(name) {
    return this.tools.find((tool) => tool.name.slice(tool.name.lastIndexOf(".") + 1) === name);
  }
}

function errorText({ tag, val }) {
  if (tag === "error") return val;
  return (tag === "tool" || tag === "browsed") && val.isError ? val.content : undefined;
}
