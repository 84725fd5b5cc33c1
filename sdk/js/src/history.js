// A history, read in pages, and only those messages that are iterated over.

import { messageFrom } from "./wire.js";

/**
 * Messages per call of the host: enough to make the call's own cost negligible, few enough that
 * reading the last message does not copy a whole conversation.
 */
const PAGE = 16;

export class History {
  #read;

  /** `read(start, count)` returns messages of the contract; possibly fewer than `count`. */
  constructor(length, read) {
    this.length = length;
    this.#read = read;
  }

  at(index) {
    const position = index < 0 ? this.length + index : index;
    if (!(position >= 0 && position < this.length)) return undefined;
    return this.#page(position, 1)[0];
  }

  slice(start = 0, end = this.length) {
    const [from, to] = [start, end].map((index) =>
      Math.min(this.length, Math.max(0, index < 0 ? this.length + index : index)),
    );
    return from < to ? this.#page(from, to - from) : [];
  }

  *[Symbol.iterator]() {
    for (let start = 0; start < this.length;) {
      const messages = this.#read(start, Math.min(PAGE, this.length - start));
      // The host has no more; without this check the loop would never end.
      if (messages.length === 0) return;
      start += messages.length;
      for (const message of messages) yield messageFrom(message);
    }
  }

  *newestFirst() {
    for (let end = this.length; end > 0;) {
      const start = Math.max(0, end - PAGE);
      yield* this.#page(start, end - start).reverse();
      end = start;
    }
  }

  /** Returns messages from `start`. The host may return fewer at once, so it asks again. */
  #page(start, count) {
    const page = [];
    while (page.length < count) {
      const messages = this.#read(start + page.length, count - page.length);
      if (messages.length === 0) break;
      page.push(...messages);
    }
    return page.map(messageFrom);
  }
}
