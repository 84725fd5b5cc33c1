// A strategy's view of the room. Reading is lazy: each property asks the host.

import * as host from "#host/delivery-context";

import { optional } from "./wire.js";

export class Context {
  #host;

  /** `source` has the functions of the contract's `delivery-context`. */
  constructor(source = host) {
    this.#host = source;
  }

  get roomId() {
    return this.#host.roomId();
  }

  get nowMs() {
    return Number(this.#host.nowMs());
  }

  get pendingResults() {
    return this.#host.pendingResults().map((ended) => ({
      ...ended,
      output: optional(ended.output),
      error: optional(ended.error),
      durationMs: Number(ended.durationMs),
      metadata: JSON.parse(ended.metadata),
    }));
  }

  get channels() {
    return this.#host.channels();
  }

  get preferredChannel() {
    const id = this.#host.preferredChannel();
    return this.channels.find((channel) => channel.id === id);
  }

  get notifiedTask() {
    return optional(this.#host.notifiedTask());
  }
}
