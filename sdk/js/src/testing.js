// Native tests of plugins: a host that grants what a test names, and the task or the room that the
// plugin reads. The values pass through the contract's form, as they do in a component.

import { withHost } from "./native/current.js";
import { known } from "./testing/known.js";
import { toBytes } from "./utf8.js";
import { View } from "./view.js";
import { actionTo, extraTo, json, optional, toolCallTo } from "./wire.js";

export { room } from "./testing/room.js";

const GRANTS = [
  "config",
  "files",
  "writable",
  "kv",
  "responses",
  "replies",
  "secrets",
  "proofs",
  "history",
  "tools",
  "programs",
  "call",
];

/** Returns a host that grants what `grants` names, and denies everything else. */
export function fakeHost(grants = {}) {
  known("fakeHost", grants, GRANTS);
  return new FakeHost(grants);
}

class FakeHost {
  #host;

  constructor({
    config,
    files = {},
    writable = [],
    kv,
    responses,
    replies,
    secrets,
    proofs,
    history,
    tools,
    programs,
    call,
  }) {
    const map = (object, convert) =>
      new Map(Object.entries(object).map(([key, value]) => [key, convert(value)]));
    this.#host = {
      grants: {
        files: { contents: map(files, toBytes), folders: foldersOf(Object.keys(files), writable) },
        kv: optional(kv, (keys) => map(keys === true ? {} : keys, toBytes)),
        responses: optional(responses, (all) => map(all, responseOf)),
        replies: optional(replies, (all) => all.map(completionOf)),
        secrets,
        proofs: optional(proofs, (all) =>
          all.map((proof) => ({ ...proof, data: optional(proof.data, toBytes) })),
        ),
        history: optional(history, stateOf),
        tools: optional(tools, (answers) => map(answers, (answer) => answer)),
        programs: optional(programs, (results) => map(results, (result) => result)),
      },
      config,
      call: optional(call, (facts) => ({ ...CALL, ...facts })),
      scratch: new Uint8Array(),
      logs: [],
      progress: [],
      requests: [],
      prompts: [],
      calls: [],
      ran: [],
    };
  }

  /** Runs the plugin's code on this host, and returns its result. */
  run(work) {
    return withHost(this.#host, work);
  }

  file(path) {
    return optional(this.#host.grants.files.contents.get(path), text);
  }

  key(name) {
    return optional(this.#host.grants.kv?.get(name), text);
  }

  get logs() {
    return this.#host.logs;
  }

  get calls() {
    return this.#host.calls;
  }

  get ran() {
    return this.#host.ran;
  }

  get progress() {
    return this.#host.progress;
  }

  /** The requests of `fetch`, oldest first, with placeholders in place of secrets. */
  get requests() {
    return this.#host.requests.map(({ method, url, headers, body }) => ({
      method,
      url,
      headers: Object.fromEntries(headers.map(({ name, value }) => [name, value])),
      body: optional(body, text),
    }));
  }

  /** The requests to the model, oldest first, in the contract's form. */
  get prompts() {
    return this.#host.prompts;
  }
}

const CALL = {
  callId: "call-1",
  attempt: 1,
  taskName: "main",
  roomId: "room-1",
  caller: "agent",
  deadlineMs: 30_000,
  traceparent: "00-00000000000000000000000000000001-0000000000000001-00",
};

const text = (bytes) => new TextDecoder().decode(bytes);

/** The folder of a file is the first part of its path. */
function foldersOf(paths, writable) {
  const roots = new Map(paths.map((path) => [path.split("/").slice(0, 2).join("/"), false]));
  for (const path of writable) roots.set(path, true);
  return [...roots].map(([path, isWritable]) => ({ path, writable: isWritable }));
}

function responseOf(response) {
  const { status = 200, headers = {}, body = "", json: value } = response;
  known("a response", response, ["status", "headers", "body", "json"]);
  const list = Object.entries(headers).map(([name, one]) => ({
    name: name.toLowerCase(),
    value: String(one),
  }));
  return { status, headers: list, body: toBytes(value === undefined ? body : json(value)) };
}

function completionOf(reply, n) {
  const { content, calls = [] } = typeof reply === "string" ? { content: reply } : reply;
  return {
    id: `completion-${n + 1}`,
    content,
    reasoning: undefined,
    toolCalls: calls.map((call, m) => toolCallTo({ id: `call-${m + 1}`, ...call })),
    stopReason: calls.length > 0 ? "tool-calls" : "end",
    usage: { inputTokens: 0, cachedInputTokens: 0, outputTokens: 0, costMicroUsd: undefined },
    model: "fake",
  };
}

const TASK = [
  "taskName",
  "inputs",
  "pending",
  "history",
  "sinceLastStep",
  "latestUserMessage",
  "plan",
  "currentPlanNode",
  "outputs",
  "lastError",
  "tools",
  "peers",
  "remaining",
  "metrics",
  "delegateLevel",
  "iteration",
];

/**
 * Returns a view of a task: of one whose user has just said a text, or of one with these parts.
 * Messages are texts of the user, or `{ sender, content, … }`.
 */
export function task(parts = {}) {
  return new View(stateOf(parts));
}

/** Returns the functions of the contract's `state` for a task. */
function stateOf(parts) {
  const given = typeof parts === "string" ? { history: [parts] } : parts;
  known("task", given, TASK);
  const history = (given.history ?? []).map(messageOf);
  const pending =
    given.pending === undefined ? history.at(-1) : messageOf(given.pending, history.length);
  const users = history.filter(({ sender }) => sender === "user");
  return {
    taskName: () => given.taskName ?? "main",
    inputs: () => json(given.inputs ?? {}),
    pending: () => pending,
    historyLength: () => history.length,
    history: (start, count) => history.slice(start, start + count),
    sinceLastStep: () => (given.sinceLastStep ?? []).map(pastActionOf),
    latestUserMessage: () => given.latestUserMessage ?? users.at(-1)?.content,
    plan: () => json(given.plan ?? []),
    currentPlanNode: () => given.currentPlanNode,
    outputs: () => json(given.outputs ?? null),
    lastError: () => given.lastError,
    tools: () => (given.tools ?? []).map(toolSummaryOf),
    peers: () => (given.peers ?? []).map(({ name, description = "" }) => ({ name, description })),
    remaining: () => ({ ...REMAINING, ...given.remaining }),
    metrics: () => ({ ...METRICS, ...given.metrics }),
    delegateLevel: () => given.delegateLevel ?? 0,
    iteration: () => given.iteration ?? 0,
  };
}

const REMAINING = {
  turns: undefined,
  tokens: undefined,
  costMicroUsd: undefined,
  wallMs: undefined,
  modelCalls: undefined,
  toolCalls: undefined,
};
const METRICS = { turns: 0, tokens: 0, costMicroUsd: 0, modelCalls: 0, toolCalls: 0 };

function messageOf(message, seq) {
  const given = typeof message === "string" ? { content: message } : message;
  const sender = given.sender ?? "user";
  return {
    seq: given.seq ?? seq,
    sender,
    senderName: given.senderName ?? sender,
    recipient: given.recipient,
    content: given.content ?? "",
    toolCalls: (given.toolCalls ?? []).map(toolCallTo),
    toolResults: given.toolResults ?? [],
    attachments: given.attachments ?? [],
    labels: given.labels ?? [],
    extra: extraTo(given.extra),
  };
}

function pastActionOf({ action, observation, seq = 0 }) {
  return {
    action: optional(action, actionTo),
    observation: optional(observation, observationOf),
    seq,
  };
}

/** Returns an observation in the contract's form; the inverse of what a view returns. */
function observationOf({ tag, val }) {
  switch (tag) {
    case "cell":
      return { tag, val: [val.code, val.output] };
    case "file":
      return { tag, val: [val.path, val.content] };
    case "delegated":
      return { tag, val: [val.task, json(val.outputs)] };
    case "tool":
      return {
        tag,
        val: { callId: "call-1", isError: false, ...val, value: optional(val.value, json) },
      };
    case "custom":
      return { tag, val: { ...val, extras: json(val.extras ?? {}) } };
    default:
      return { tag, val };
  }
}

const toolSummaryOf = (tool) => {
  const {
    name,
    description = "",
    inputSchema = { type: "object" },
  } = typeof tool === "string" ? { name: tool } : tool;
  return { name, description, inputSchema: json(inputSchema) };
};

/** Returns an answer of the model that the host takes, and that does not end the task. */
export function answer(content, parts = {}) {
  return {
    message: messageFromTest(content),
    responder: "llm",
    valid: true,
    done: false,
    ...parts,
  };
}

const messageFromTest = (content) => task({ history: [{ sender: "llm", content }] }).pending;

/** Returns the end of a task that is done with this text. */
export function ending(content, parts = {}) {
  return {
    status: "DONE",
    reason: "the model said that it is done",
    result: { text: content },
    ...parts,
  };
}

/** Returns a text to check, as a gate gets it. */
export function gateInput(content, parts = {}) {
  return {
    point: "inbound",
    room: "room-1",
    channel: undefined,
    fromTask: undefined,
    toTask: undefined,
    text: content,
    metadata: {},
    ...parts,
  };
}

/** Returns an event, as an observer gets it. */
export function event(kind, parts = {}) {
  return {
    room: "3f2a91c0",
    seq: 17,
    index: 0,
    time: 0,
    kind,
    task: "main",
    details: {},
    ...parts,
  };
}
