// Fails to compile if the inference of types changes: `npm run types`.

import {
  Outcome,
  act,
  agent,
  analyzer,
  background,
  callTool,
  condenser,
  config,
  delivery,
  fetch,
  files,
  finish,
  gate,
  allow,
  judge,
  kv,
  low,
  memory,
  model,
  observer,
  replyWith,
  responder,
  s,
  say,
  secret,
  simulatedUser,
  strategy,
  tool,
  toolset,
} from "@conclave/sdk";
import type { Infer, Turn, View } from "@conclave/sdk";
import { fakeHost, room, task } from "@conclave/sdk/testing";

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Same<A, B>) => {};

const input = s.object({
  text: s.string("What to count."),
  shortest: s.integer("The shortest word.", { minimum: 1 }).optional(),
  unit: s.enum(["words", "letters"]).default("words"),
  tags: s.array(s.string()),
  note: s.string().nullable(),
  size: s.union([s.number(), s.literal("all")]),
});
same<
  Infer<typeof input>,
  {
    text: string;
    unit: "words" | "letters";
    tags: string[];
    note: string | null;
    size: number | "all";
    shortest?: number;
  }
>(true);

export const count = tool({
  name: "count",
  description: "Counts.",
  input,
  output: s.object({ words: s.integer() }),
  run({ text, shortest = 1, unit }) {
    same<typeof text, string>(true);
    same<typeof shortest, number>(true);
    same<typeof unit, "words" | "letters">(true);
    return { words: text.length };
  },
});

tool({
  name: "wrong",
  description: "Returns something else than its schema says.",
  output: s.object({ words: s.integer() }),
  // @ts-expect-error the result lacks `words`
  run: () => ({ letters: 1 }),
});

// @ts-expect-error a tool needs a description
tool({ name: "silent", run: () => "" });

tool({
  name: "raw",
  description: "Takes a JSON Schema.",
  input: { type: "object" },
  run: (values) => values.anything,
});
tool({ name: "control", description: "Ends the task.", run: () => Outcome.done("sent") });
toolset({ list: () => [{ name: "a", description: "A." }], call: (name) => name });

export const desk = agent({
  step(view) {
    same<typeof view, View>(true);
    const observed = view.lastObservation;
    if (observed?.tag === "tool") return finish(observed.val.content);
    if (view.backgroundAnswer?.tag === "ended") return finish(view.backgroundAnswer.output);
    const answer = model.complete({ prompt: [model.system(), model.history(), "Be brief."] });
    return answer.toolCalls.length > 0
      ? replyWith(answer)
      : callTool("search.find", { query: "x" });
  },
});
// @ts-expect-error a step returns a turn
agent({ step: () => "hello" });
agent(
  class {
    step(_view: View): Turn {
      return act.run("ls", { background: true, thought: "to look around" });
    }
    respond() {
      return say("hello", { to: "user" });
    }
  },
);
responder({ respond: () => undefined });

strategy({
  decide(wake, context) {
    const { now, rest } = delivery.due(wake, context.pendingResults);
    return [delivery.deliver(now, { interrupt: false }), ...rest];
  },
});
gate({ check: ({ text }) => (text ? allow() : { tag: "block", val: "it is empty" }) });
analyzer({ assess: (action) => (action.tag === "run" ? low(action.val.command) : low()) });
condenser({ condense: (_reason, view) => ({ forget: [[1, view.history.length]] }) });
memory({ search: (query, limit) => [query].slice(0, limit) });
judge({
  valid: ({ message }) => message.content !== "",
  result: () => ({ text: "1844", value: 1844 }),
});
simulatedUser({ answer: (question) => (question ? "yes" : undefined) });
observer({ observe: (events) => events.forEach(({ kind }) => console.log(kind)) });
background.start("writer", "Write.", { deliver: { inbox: true }, deadlineMs: 1_000 });

const { words } = config.get(s.object({ words: s.array(s.string()) }));
same<typeof words, string[]>(true);
const bytes: Uint8Array = files.read("/a");
const value: string | undefined = kv.getText("a");
const status: number = fetch("https://a.example", {
  headers: { authorization: secret("token") },
}).status;
void [bytes, value, status];

const host = fakeHost({ kv: true, replies: ["yes", { calls: [{ name: "a.b" }] }] });
const turn: Turn = host.run(() => desk.step(task("When was it lit?")));
void [turn, room({ channels: [{ id: "phone", kind: "voice" }] }).preferredChannel?.id];

declare const console: { log(text: string): void };
