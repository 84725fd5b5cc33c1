// <NAME>: blocks texts that hold a word of its settings.

import { allow, block, config, gate, s } from "@conclave/sdk";

const settings = s.object({ words: s.array(s.string()).default([]) });

export const words = gate({
  check({ text }) {
    const lower = text.toLowerCase();
    const found = config.get(settings).words.find((word) => lower.includes(word.toLowerCase()));
    return found === undefined ? allow() : block(`it holds “${found}”`);
  },
});
