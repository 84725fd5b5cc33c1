/**
 * Native tests of plugins, for `node:test`. Values pass through the contract's form, as they do in
 * a component.
 */

import type {
  Action,
  Ending,
  GateInput,
  Json,
  JudgedAnswer,
  Message,
  ObservedEvent,
  Observation,
  ToolCall,
  View,
  delivery,
} from "./index.js";

type MessageParts = Partial<Omit<Message, "toolCalls">> & { toolCalls?: ToolCall[] };

/** A task for a test. A message that is a text is one of the user. */
export interface TaskParts {
  taskName?: string;
  inputs?: { [key: string]: Json };
  /** The message that waits for an answer; the last one of the history if it is absent. */
  pending?: string | MessageParts;
  history?: (string | MessageParts)[];
  sinceLastStep?: { action?: Action; observation?: Observation; seq?: number }[];
  latestUserMessage?: string;
  plan?: Json;
  currentPlanNode?: string;
  outputs?: Json;
  lastError?: string;
  tools?: (string | { name: string; description?: string; inputSchema?: object })[];
  peers?: { name: string; description?: string }[];
  remaining?: Partial<View["remaining"]>;
  metrics?: Partial<View["metrics"]>;
  delegateLevel?: number;
  iteration?: number;
}

/** What a fake host grants. A capability that is absent is denied. */
export interface Grants {
  /** The plugin's settings. */
  config?: { [key: string]: Json };
  /** Files by path, in folders that can be read. The folder is the first part of the path. */
  files?: { [path: string]: string | Uint8Array };
  /** Folders that can be written. */
  writable?: string[];
  /** The key-value store with these keys; true for an empty one. */
  kv?: true | { [key: string]: string | Uint8Array };
  /** Responses by the whole address, with its query. */
  responses?: {
    [url: string]: {
      status?: number;
      headers?: { [name: string]: string };
      body?: string | Uint8Array;
      json?: unknown;
    };
  };
  /** The replies of the model, in order: texts, or texts with calls. */
  replies?: (string | { content?: string; calls?: ToolCall[] })[];
  /** Names of secrets. The placeholder of a secret is `<secret NAME>`. */
  secrets?: string[];
  /** The valid proofs of requests to a channel. */
  proofs?: ({ token: string } | { data: string | Uint8Array; signature: Uint8Array })[];
  /** The conversation of the task that calls the tool. */
  history?: string | TaskParts;
  /**
   * Other tools by name, each with its only answer: a text is its content, an error its failure,
   * and anything else its value.
   */
  tools?: { [name: string]: string | Error | Json };
  /** Commands, such as `git log main`, each with its only result. */
  programs?: { [command: string]: { exitCode?: number; stdout?: string; stderr?: string } };
  /** The facts about the tool call. */
  call?: {
    callId?: string;
    attempt?: number;
    taskName?: string;
    roomId?: string;
    caller?: string;
    deadlineMs?: number;
    traceparent?: string;
  };
}

/** A host in memory. Its contents remain from one `run` to the next. */
export interface FakeHost {
  /** Runs the plugin's code on this host, and returns its result. */
  run<T>(work: () => T): T;
  /** Returns the text of a file; `undefined` if there is none. */
  file(path: string): string | undefined;
  /** Returns the text of a key; `undefined` if it is absent. */
  key(name: string): string | undefined;
  readonly logs: { level: string; message: string }[];
  readonly progress: { done: number; total?: number; message: string }[];
  /** The requests of `fetch`, with placeholders in place of secrets. */
  readonly requests: {
    method: string;
    url: string;
    headers: { [name: string]: string };
    body?: string;
  }[];
  /** The requests to the model, in the contract's form. */
  readonly prompts: any[];
  /** The calls of other tools. */
  readonly calls: { name: string; arguments: { [name: string]: Json } }[];
  /** The programs that ran. */
  readonly ran: { command: string; directory?: string; input: string }[];
}

/** Returns a host that grants what a test names, and denies everything else. */
export function fakeHost(grants?: Grants): FakeHost;
/** Returns a view of a task; a text is the message of its user. */
export function task(parts?: string | TaskParts): View;
/** Returns a strategy's view of a room. A result that is a text is the id of a completed task. */
export function room(parts?: {
  roomId?: string;
  nowMs?: number;
  pendingResults?: (string | (Partial<delivery.EndedTask> & { taskId: string }))[];
  channels?: (Partial<delivery.Channel> & { id: string })[];
  preferredChannel?: string;
  notifiedTask?: string;
}): delivery.Context;

/** Returns an answer of the model that the host takes, and that does not end the task. */
export function answer(content: string, parts?: Partial<JudgedAnswer>): JudgedAnswer;
/** Returns the end of a task that is done with this text. */
export function ending(content: string, parts?: Partial<Ending>): Ending;
/** Returns a text to check, as a gate gets it. */
export function gateInput(content: string, parts?: Partial<GateInput>): GateInput;
/** Returns an event, as an observer gets it. */
export function event(kind: string, parts?: Partial<ObservedEvent>): ObservedEvent;
