// <NAME>: remembers notes, and finds those that hold the words of a query.

import { kv, memory, s, tool } from "@conclave/sdk";

/** The key of the store; notes are its lines. */
const KEY = "notes";

const notes = () => kv.getText(KEY) ?? "";

export const notebook = memory({
  search(query, limit) {
    const words = query.toLowerCase().split(/\s+/);
    const holds = (note) => words.every((word) => note.toLowerCase().includes(word));
    return notes()
      .split("\n")
      .filter((note) => note !== "" && holds(note))
      .slice(0, limit);
  },
});

export const remember = tool({
  name: "remember",
  description: "Stores a note. Use it for facts that will be needed later.",
  input: s.object({ note: s.string("One sentence.") }),
  run({ note }) {
    kv.set(KEY, `${notes()}${note.replaceAll("\n", " ")}\n`);
    return "stored";
  },
});
