// One plugin with a tool for each promise of the pages, an agent and a strategy.

import {
  agent, delivery, fetch, files, finish, kv, model, replyWith, s, scratch, strategy, tool,
} from "@conclave/sdk";

export const fails = tool({
  name: "fails",
  description: "Fail with an exception of its own.",
  input: s.object({ text: s.string("What to look up.") }),
  run({ text }) {
    throw new Error(`there is no ${text}`);
  },
});

export const opened = tool({
  name: "opened",
  description: "Read a file.",
  input: s.object({ path: s.string("The file.") }),
  run: ({ path }) => files.readText(path),
});

export const counted = tool({
  name: "counted",
  description: "Count its calls.",
  input: s.object({}),
  run() {
    const count = Number(kv.getText("count") ?? 0) + 1;
    kv.set("count", String(count));
    return count;
  },
});

export const fetched = tool({
  name: "fetched",
  description: "Fetch a page.",
  input: s.object({ url: s.string("The page.") }),
  run: ({ url }) => fetch(url).text(),
});

export const spins = tool({
  name: "spins",
  description: "Never end.",
  input: s.object({}),
  run() {
    for (;;);
  },
});

export const grows = tool({
  name: "grows",
  description: "Take memory without end.",
  input: s.object({}),
  run() {
    const held = [];
    for (;;) held.push(new Uint8Array(1 << 20));
  },
});

export const desk = agent({
  step() {
    const steps = (scratch.get() ?? 0) + 1;
    scratch.set(steps);
    const answer = model.answer();
    return answer.toolCalls.length > 0 ? replyWith(answer) : finish(`${answer.content} (${steps})`);
  },
});

export const atOnce = strategy({
  decide(wake, context) {
    const pending = context.pendingResults.map(({ taskId }) => taskId);
    return pending.length > 0 ? [delivery.deliver(pending)] : [];
  },
});
