import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Denied,
  HostError,
  InvalidArguments,
  Unavailable,
  act,
  agent,
  analyzer,
  background,
  callTool,
  callTools,
  channel,
  condenser,
  answerWith,
  delivered,
  delivery,
  finish,
  gate,
  high,
  judge,
  memory,
  modify,
  observer,
  received,
  refused,
  reject,
  replyWith,
  responder,
  retry,
  say,
  shortened,
  simulatedUser,
  strategy,
  verifyToken,
} from "@conclave/sdk";
import { answer, ending, event, fakeHost, room, task } from "@conclave/sdk/testing";

import * as agents from "../src/exports/agent.js";
import { securityAnalyzer } from "../src/exports/analyzer.js";
import { channel as channelOf } from "../src/exports/channel.js";
import { condenser as condenserOf } from "../src/exports/condenser.js";
import { gate as gateOf } from "../src/exports/gate.js";
import { judge as judgeOf } from "../src/exports/judge.js";
import { memory as memoryOf } from "../src/exports/memory.js";
import { observer as observerOf } from "../src/exports/observer.js";
import { simulatedUser as simulatedUserOf } from "../src/exports/simulated_user.js";
import { deliveryStrategy } from "../src/exports/strategy.js";
import { actionFrom, turnTo } from "../src/wire.js";

/** Returns what a component returns, or the contract's error. */
function result(work, host = fakeHost()) {
  return host.run(() => {
    try {
      return work();
    } catch (error) {
      return { error };
    }
  });
}

const step = (definition) => result(agents.agent({ agent: [agent(definition)] }).step);
const thrown = (error) => () => {
  throw error;
};
const denial = { capability: "model", target: "default", detail: "no grant" };

test("a turn is in the contract's form, with JSON where it has JSON", () => {
  const reply = {
    completion: undefined,
    content: undefined,
    toolCalls: [],
    recipient: undefined,
    attachments: [],
  };
  const form = (turn) => step({ step: () => turn }).action;
  assert.deepEqual(form(say("hello", { to: "user" })), {
    tag: "reply",
    val: { ...reply, content: "hello", recipient: "user" },
  });
  assert.deepEqual(
    form(callTools([{ name: "a.b", arguments: { n: 1 } }, { name: "a.c" }])).val.toolCalls,
    [
      { id: "", name: "a.b", arguments: '{"n":1}' },
      { id: "", name: "a.c", arguments: "{}" },
    ],
  );
  const completion = {
    id: "c-1",
    content: "yes",
    toolCalls: [{ id: "1", name: "a.b", arguments: {} }],
  };
  assert.deepEqual(form(replyWith(completion)).val, {
    ...reply,
    completion: "c-1",
    content: "yes",
    toolCalls: [{ id: "1", name: "a.b", arguments: "{}" }],
  });
  assert.deepEqual(form(finish({ year: 1844 })), { tag: "finish", val: '{"year":1844}' });
  assert.deepEqual(form(finish(undefined)), { tag: "finish", val: "null" });
  assert.deepEqual(form(reject("no")), { tag: "reject", val: '"no"' });
});

test("the options of a turn are its reason, its wait and its extras", () => {
  const turn = step({
    step: () => act.ask("Which one?", { thought: "two fit", extra: { "x-a": [1] } }),
  });
  assert.deepEqual(turn, {
    action: { tag: "talk", val: "Which one?" },
    thought: "two fit",
    waitForResponse: true,
    extra: [{ key: "x-a", value: "[1]" }],
  });
});

test("every action travels both ways", () => {
  const turns = [
    act.nothing(),
    act.run("ls"),
    act.run("ls", { background: true }),
    act.kill(7),
    act.runCell("1"),
    act.browse("https://a.example"),
    act.read("/a", { start: 1, end: 2 }),
    act.write("/a", "x"),
    act.recall("lit"),
    act.addTask("build", { parent: "0", subtasks: [{ goal: "a" }] }),
    act.modifyTask("0", "in-progress"),
    act.delegate("study", { n: 1 }),
    act.think("hm"),
    act.talk("hello"),
    act.delegateAll([{ task: "a" }, { task: "b", inputs: { n: 1 } }]),
    act.browseInteractive("click(1)"),
    act.viewTasks(),
    act.trackTasks([{ title: "a", status: "todo" }]),
    act.requestCondensation(),
    act.edit.view("/a"),
    act.edit.viewLines("/a", 1, -1),
    act.edit.create("/a", "x"),
    act.edit.replace("/a", "x", "y"),
    act.edit.insertAfter("/a", 3, "y"),
    act.edit.undo("/a"),
    say("hello"),
    callTool("a.b", { n: 1 }),
    finish({ n: 1 }),
    reject("no"),
    background.start("writer", "Write.", {
      structured: { schema: { type: "object" } },
      deadlineMs: 5,
    }),
  ];
  const plain = (value) => JSON.parse(JSON.stringify(value));
  for (const turn of turns) {
    assert.deepEqual(
      plain(actionFrom(turnTo(turn).action)),
      plain({ ...turn.action, ...fromHost(turn.action) }),
    );
  }
});

/** The host gives each tool call an id; the test has none. */
function fromHost({ tag, val }) {
  if (tag !== "reply") return {};
  return { val: { ...val, toolCalls: val.toolCalls.map((call) => ({ id: "", ...call })) } };
}

test("an edit is in the fixed JSON form", () => {
  assert.deepEqual(turnTo(act.edit.replace("/a", "x", "y")).action, {
    tag: "custom",
    val: {
      name: "edit",
      arguments: '{"path":"/a","command":"str_replace","old_str":"x","new_str":"y"}',
    },
  });
});

test("a delegation has every field of the contract", () => {
  const turn = background.start("writer", "Write.", {
    context: { words: 2 },
    shareChannels: ["web"],
    brief: "Write two words.",
    conversationMessages: 3,
    wait: true,
    structured: { schema: { type: "object" } },
    deliver: { strategy: "digest" },
    resultForm: "text",
    notify: "desk",
    deadlineMs: 5,
    turns: 3,
    onClose: "detach",
    key: "k",
    thought: "it takes long",
  });
  assert.deepEqual(turnTo(turn), {
    action: {
      tag: "delegate-task",
      val: {
        worker: "writer",
        description: "Write.",
        context: '{"words":2}',
        shareChannels: ["web"],
        brief: "Write two words.",
        conversationMessages: 3,
        wait: true,
        structured: { schema: '{"type":"object"}', retries: 3 },
        deliver: { tag: "strategy", val: "digest" },
        resultForm: "text",
        notify: "desk",
        deadlineMs: 5,
        turns: 3,
        onClose: "detach",
        key: "k",
      },
    },
    thought: "it takes long",
    waitForResponse: false,
    extra: [],
  });
  assert.equal(background.start("a", "b").action.val.deliver.tag, "as-configured");
  assert.equal(
    background.start("a", "b", { deliver: { inbox: true } }).action.val.deliver.tag,
    "inbox",
  );
  assert.throws(() => background.start("a", "b", { dedline: 1 }), /there is no option dedline/);
});

test("each form of the host's answer to a delegation is read", () => {
  const read = (value) => background.parseAnswer(JSON.stringify(value));
  const started = { tag: "started", taskId: "task-1", worker: "writer" };
  assert.deepEqual(read({ status: "delegated", task_id: "task-1", agent: "writer" }), started);
  assert.deepEqual(read({ tasks: [{ task_id: "task-1", agent: "writer", status: "running" }] }), {
    tag: "listed",
    tasks: [started],
  });
  assert.deepEqual(read({ status: "timed out", task_id: "task-1", error: "late" }), {
    tag: "ended",
    taskId: "task-1",
    status: "timed out",
    output: undefined,
    reason: "late",
  });
  assert.deepEqual(read({ error: "not_granted", message: "No.", allowed: ["a"] }), {
    tag: "refused",
    code: "not_granted",
    message: "No.",
    allowed: ["a"],
  });
  assert.deepEqual(read({ task_id: "task-1", cancelled: false, status: "completed" }), {
    tag: "done",
    taskId: "task-1",
    done: false,
  });
  assert.equal(background.parseAnswer("Good morning."), undefined);
  assert.equal(read({}), undefined);
  const view = task({
    history: ['{"status":"told","task_id":"task-2"}'],
    sinceLastStep: [
      {
        observation: {
          tag: "success",
          val: '{"status":"delegated","task_id":"task-1","agent":"w"}',
        },
      },
    ],
  });
  assert.equal(view.backgroundAnswer.taskId, "task-1");
  assert.equal(task('{"status":"told","task_id":"task-2"}').backgroundAnswer.taskId, "task-2");
});

test("an agent's errors keep their case", () => {
  const errorOf = (error) => step({ step: thrown(error) }).error;
  assert.deepEqual(errorOf(new InvalidArguments("no JSON")), { tag: "malformed", val: "no JSON" });
  assert.deepEqual(errorOf(new Denied(denial)), { tag: "denied", val: denial });
  assert.deepEqual(errorOf(new HostError("model: used up", "budget-exhausted")), {
    tag: "other",
    val: "model: used up",
  });
  assert.match(
    step({ step: () => "hello" }).error.val,
    /agent: step: return a turn, such as finish/,
  );
});

test("an agent is an object or a class, and may respond", () => {
  class Desk {
    greeting = "hello";
    step() {
      return say(this.greeting);
    }
    respond(view) {
      return view.pending.content.includes("open") ? say("From nine to five.") : undefined;
    }
  }
  const desk = agent(Desk);
  assert.equal(desk.step().action.val.content, "hello");
  assert.deepEqual(desk.respond(task("When are you open?")), say("From nine to five."));
  const respond = (definition) =>
    result(agents.responder({ responder: [responder(definition)] }).respond);
  assert.equal(respond({ respond: () => undefined }), undefined);
  assert.equal(respond({ respond: () => say("yes") }).action.val.content, "yes");
  assert.throws(() => agent({}), /agent: the function step is missing/);
  assert.throws(() => agent({ async step() {} }), /agent: step is async/);
  assert.match(step({ step: () => Promise.resolve(finish("a")) }).error.val, /returned a promise/);
});

test("a view has the parts of its task", () => {
  const view = task({
    taskName: "desk",
    inputs: { year: 1844 },
    history: [
      "When?",
      { sender: "llm", content: "", toolCalls: [{ name: "search.find", arguments: { q: "lit" } }] },
    ],
    sinceLastStep: [
      {
        action: callTool("search.find").action,
        observation: {
          tag: "tool",
          val: { name: "search.find", content: "found", value: { n: 1 } },
        },
      },
      { observation: { tag: "tool", val: { name: "a.b", content: "failed", isError: true } } },
      { observation: { tag: "error", val: "no" } },
      { observation: { tag: "file", val: { path: "/a", content: "x" } } },
      { observation: { tag: "delegated", val: { task: "study", outputs: { n: 2 } } } },
      { observation: { tag: "cell", val: { code: "1", output: "1" } } },
      {
        observation: {
          tag: "command",
          val: { commandId: -1, command: "ls", exitCode: 0, content: "a" },
        },
      },
    ],
    tools: [{ name: "search.find", inputSchema: { type: "object" } }, "done"],
    peers: [{ name: "study" }],
    remaining: { turns: 3 },
  });
  assert.equal(view.taskName, "desk");
  assert.deepEqual(view.inputs, { year: 1844 });
  assert.deepEqual(view.pending.toolCalls, [
    { id: "", name: "search.find", arguments: { q: "lit" } },
  ]);
  assert.equal(view.latestUserMessage, "When?");
  assert.deepEqual(
    view.toolOutputs.map(({ content, value }) => [content, value]),
    [
      ["found", { n: 1 }],
      ["failed", undefined],
    ],
  );
  assert.deepEqual(view.errors, ["failed", "no"]);
  assert.deepEqual(view.file, { path: "/a", content: "x" });
  assert.deepEqual(
    view.commandOutputs.map(({ content }) => content),
    ["a"],
  );
  assert.deepEqual(view.observations[4], {
    tag: "delegated",
    val: { task: "study", outputs: { n: 2 } },
  });
  assert.deepEqual(view.observations[5], { tag: "cell", val: { code: "1", output: "1" } });
  assert.deepEqual(view.lastObservation.tag, "command");
  assert.deepEqual(view.tool("find").inputSchema, { type: "object" });
  assert.equal(view.tool("none"), undefined);
  assert.deepEqual(view.peers, [{ name: "study", description: "" }]);
  assert.equal(view.remaining.turns, 3);
  assert.equal(view.remaining.tokens, undefined);
  assert.deepEqual(view.metrics.turns, 0);
  assert.deepEqual(
    [view.plan, view.outputs, view.lastError, view.currentPlanNode],
    [[], null, undefined, undefined],
  );
  assert.throws(() => task({ histry: [] }), /task: there is no part histry/);
});

test("the results of calls in the pending message are tool outputs too", () => {
  const view = task({
    history: [
      {
        sender: "agent",
        toolResults: [{ callId: "1", name: "a.b", content: "x", isError: false }],
      },
    ],
  });
  assert.deepEqual(view.toolOutputs, [
    { callId: "1", name: "a.b", content: "x", isError: false, value: undefined },
  ]);
});

test("a history is read in pages, from either end", () => {
  let read = 0;
  const messages = [...Array(40).keys()].map((n) => ({ content: `${n}` }));
  const { history } = task({ history: messages });
  const numbers = (iterable) => [...iterable].map(({ content }) => Number(content));
  const ascending = [...Array(40).keys()];
  assert.deepEqual(numbers(history), ascending);
  assert.deepEqual(numbers(history.newestFirst()), [...ascending].reverse());
  assert.deepEqual(numbers(history.slice(-2)), [38, 39]);
  assert.deepEqual(numbers(history.slice(3, 5)), [3, 4]);
  assert.equal(history.at(-1).content, "39");
  assert.equal(history.at(40), undefined);
  const History = history.constructor;
  const wire = (n) => ({
    seq: n,
    sender: "user",
    senderName: "",
    content: `${n}`,
    toolCalls: [],
    toolResults: [],
    attachments: [],
    labels: [],
    extra: [],
  });
  /** Like a host that returns at most five messages at once. */
  const stingy = (start, count) => {
    const page = [...Array(Math.min(count, 5)).keys()].map((n) => wire(start + n));
    read += page.length;
    return page;
  };
  assert.deepEqual(numbers(new History(40, stingy)), ascending);
  assert.deepEqual(numbers(new History(40, stingy).newestFirst()), [...ascending].reverse());
  read = 0;
  for (const message of new History(10_000, stingy).newestFirst()) {
    assert.equal(message.seq, 9_999);
    break;
  }
  assert.equal(read, 16);
  assert.deepEqual([...new History(20, () => [])], []);
});

test("a gate gets its facts, and returns a verdict", () => {
  const input = {
    point: "delegate",
    room: "r",
    channel: null,
    fromTask: "desk",
    toTask: null,
    text: "a secret",
    metadata: '{"n":1}',
  };
  const check = (definition) => result(() => gateOf({ gate: [gate(definition)] }).check(input));
  assert.deepEqual(
    check({
      check: ({ metadata, channel, fromTask }) =>
        modify(JSON.stringify([metadata, channel ?? "none", fromTask])),
    }),
    { tag: "modify", val: '[{"n":1},"none","desk"]' },
  );
  assert.match(
    check({ check: () => true }).error.val,
    /return allow\(\), modify\(text\) or block\(reason\)/,
  );
  assert.deepEqual(check({ check: thrown(new Denied(denial)) }).error, {
    tag: "denied",
    val: denial,
  });
});

test("an analyzer reads the action's arguments as values", () => {
  const action = {
    tag: "reply",
    val: { toolCalls: [{ id: "1", name: "a.b", arguments: '{"n":7}' }], attachments: [] },
  };
  const assess = (definition) =>
    result(() => securityAnalyzer({ analyzer: [analyzer(definition)] }).assess(action, "why"));
  assert.deepEqual(
    assess({ assess: ({ val }, thought) => high(`${thought} ${val.toolCalls[0].arguments.n}`) }),
    { risk: "high", reason: "why 7" },
  );
  assert.match(assess({ assess: () => "high" }).error.val, /return low\(reason\)/);
});

test("a condenser returns ranges and texts", () => {
  const condense = (value) =>
    result(() =>
      condenserOf({ condenser: [condenser({ condense: () => value })] }).condense("size"),
    );
  assert.equal(condense(undefined), undefined);
  assert.deepEqual(
    condense({ forget: [[1, 4]], mask: [{ index: 8, text: shortened("Dear") }], summary: "three" }),
    {
      forget: [{ start: 1, end: 4 }],
      mask: [{ index: 8, text: "Dear…" }],
      summary: "three",
    },
  );
});

test("a judge leaves open what it does not decide", () => {
  const message = {
    seq: 1,
    sender: "llm",
    senderName: "desk",
    recipient: null,
    content: "42",
    toolCalls: [],
    toolResults: [],
    attachments: [],
    labels: [],
    extra: [],
  };
  const asked = { message, responder: "llm", valid: true, done: false };
  const rule = (definition) => result(() => judgeOf({ judge: [judge(definition)] }).rule(asked));
  assert.deepEqual(rule({ valid: ({ message }) => message.content === "42" }), {
    valid: true,
    done: undefined,
  });
  let isAsked = false;
  assert.deepEqual(rule({ valid: () => false, done: () => (isAsked = true) }), {
    valid: false,
    done: undefined,
  });
  assert.equal(isAsked, false);
  const conclude = (definition) =>
    result(() =>
      judgeOf({ judge: [judge(definition)] }).conclude({
        status: "DONE",
        reason: "",
        result: { text: "a", value: '{"n":1}' },
      }),
    );
  assert.equal(conclude({ valid: () => true }), undefined);
  assert.deepEqual(
    conclude({ result: ({ result }) => ({ text: result.text, value: result.value }) }),
    { text: "a", value: '{"n":1}' },
  );
  assert.deepEqual(conclude({ result: () => "1844" }), { text: "1844", value: undefined });
  assert.throws(() => judge({}), /one of the functions valid, done and result is needed/);
  assert.deepEqual(judge({ valid: ({ valid }) => valid }).valid(answer("a")), true);
  assert.equal(judge({ result: ({ status }) => status }).result(ending("a")), "DONE");
});

test("a memory returns at most as many texts as were asked for", () => {
  const search = (found) =>
    result(() => memoryOf({ memory: [memory({ search: () => found })] }).search("lit", 2));
  assert.deepEqual(search(["a", "b", "c"]), ["a", "b"]);
  assert.match(search("a").error.val, /return a list of texts/);
});

test("a simulated user answers, or does not", () => {
  const answerWith = (value) =>
    result(() =>
      simulatedUserOf({ "simulated-user": [simulatedUser({ answer: () => value })] }).answer(
        "When?",
      ),
    );
  assert.equal(answerWith("quit"), "quit");
  assert.equal(answerWith(undefined), undefined);
});

test("an observer reads the details, and can ask for a later delivery", () => {
  const seen = [];
  const wire = { ...event("task-ended"), task: null, details: '{"notice":"task-ended"}' };
  const observe = (work) =>
    result(() => observerOf({ observer: [observer({ observe: work })] }).observe([wire]));
  assert.equal(
    observe((events) => {
      seen.push(...events);
      return "ignored";
    }),
    undefined,
  );
  assert.deepEqual([seen[0].task, seen[0].details], [undefined, { notice: "task-ended" }]);
  assert.deepEqual(observe(thrown(new Unavailable(2_000))).error, {
    tag: "unavailable",
    val: 2_000,
  });
  assert.deepEqual(observe(thrown(new Denied(denial))).error, { tag: "denied", val: denial });
});

test("a strategy's decisions are in the contract's form", () => {
  const decide = (decisions) =>
    result(() =>
      deliveryStrategy({ strategy: [strategy({ decide: () => decisions })] }).decide({
        tag: "timer",
      }),
    );
  assert.deepEqual(
    decide([
      delivery.deliver(new Set(["a"]), { channel: "phone" }),
      delivery.wait(250),
      delivery.wait(10, "phone"),
      delivery.giveUp("no"),
    ]),
    [
      {
        tag: "deliver",
        val: { tasks: ["a"], channel: "phone", prompt: undefined, interrupt: false },
      },
      { tag: "wait", val: { channel: undefined, timeoutMs: 250 } },
      { tag: "wait", val: { channel: "phone", timeoutMs: 10 } },
      { tag: "give-up", val: "no" },
    ],
  );
  assert.match(decide(delivery.wait(1)).error.val, /return a list of decisions/);
  assert.match(decide([delivery.wait(0.5)]).error.val, /RangeError: 0.5 is not an integer/);
});

test("a result that failed waits for its time, and the rest does not wait for it", () => {
  const { pendingResults } = room({
    pendingResults: [
      ["a", 2],
      ["b", 0],
      ["c", 4],
      ["d", 3],
    ].map(([taskId, attempts]) => ({ taskId, attempts })),
  });
  const inbox = delivery.moveToInbox(["c"]);
  assert.deepEqual(delivery.due({ tag: "send-failed", val: "busy" }, pendingResults), {
    now: ["b"],
    rest: [inbox, delivery.wait(2_000)],
  });
  assert.deepEqual(delivery.due({ tag: "timer" }, pendingResults), {
    now: ["a", "b", "d"],
    rest: [inbox],
  });
  assert.deepEqual(delivery.due({ tag: "channel-idle", val: "phone" }, pendingResults).now, [
    "a",
    "b",
    "d",
  ]);
  assert.deepEqual(delivery.due({ tag: "ended", val: "b" }, pendingResults), {
    now: ["b"],
    rest: [inbox],
  });
  assert.deepEqual([0, 1, 2, 3, 4].map(delivery.backoffMs), [
    1_000,
    1_000,
    2_000,
    4_000,
    undefined,
  ]);
});

test("voice is preferred, and muted channels and agents are not", () => {
  const preferred = (...channels) => room({ channels }).preferredChannel?.id;
  assert.equal(preferred({ id: "web" }, { id: "phone", kind: "voice" }), "phone");
  assert.equal(preferred({ id: "web" }, { id: "phone", kind: "voice", muted: true }), "web");
  assert.equal(preferred({ id: "desk", kind: "agent" }), undefined);
});

test("a strategy words its messages, and measures how long results wait", () => {
  const { Waited, deliver, wait, worded } = delivery;
  const own = deliver(["b"], { prompt: "mine" });
  const decisions = worded([deliver(["a"]), own, wait(1)], "ready");
  assert.deepEqual(decisions, [deliver(["a"], { prompt: "ready" }), own, wait(1)]);
  assert.deepEqual(worded([deliver(["a"])], ""), [deliver(["a"])]);
  let waited = new Waited();
  const ms = (tasks, now) => {
    const time = waited.ms(
      tasks.map((taskId) => ({ taskId })),
      now,
    );
    waited = new Waited(JSON.parse(JSON.stringify(waited)));
    return time;
  };
  assert.deepEqual(
    [ms(["a", "b"], 1_000), ms(["a", "b"], 1_400), ms(["b"], 1_500), ms([], 9_000)],
    [0, 400, 0, 0],
  );
});

test("a channel's answers have the contract's form, and any other is an error", () => {
  const of = (send, received = () => refused("no")) =>
    channelOf({ channel: [channel({ send, received })] });
  const message = { id: "msg_1", attempt: 1, room: "r", text: "hello" };
  const send = (answer) => result(() => of(() => answer).send(message));
  assert.deepEqual(send(delivered("17")), { tag: "delivered", val: "17" });
  assert.equal(send(retry("later", 7)).val.afterMs !== undefined, true);
  assert.equal(send(undefined).error.tag, "other");
  const request = {
    headers: [["x-token", "a token"]],
    query: "",
    body: new Uint8Array(),
    time: 7n,
  };
  const read = (answer) => result(() => of(() => delivered(), answer).received(request));
  const one = { id: "m1", sender: "ada", conversation: "C1", text: "hello" };
  assert.deepEqual(
    read(() => received([one])),
    { tag: "messages", val: [one] },
  );
  assert.deepEqual(read(() => answerWith("{}", "json")).val, { bodyType: "json", body: "{}" });
  assert.equal(read(thrown(new Error("oops"))).error.tag, "other");
  const host = fakeHost({ proofs: [{ token: "a token" }] });
  const isValid = ({ headers: [[, token]] }) => refused(String(verifyToken(token)));
  assert.equal(result(() => of(() => {}, isValid).received(request), host).val, "true");
});
