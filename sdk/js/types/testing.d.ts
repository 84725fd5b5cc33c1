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

/** A guarantee of a strategy to the users that it speaks to. */
export type Guarantee =
  | "answers"
  | "nothing-lost"
  | "decides-once"
  | "only-pending-results"
  | "only-its-channels"
  | "never-over-a-user"
  | "backs-off"
  | "not-busy"
  | "reports-failures"
  | "deterministic"
  | "as-expected";

/** A broken guarantee, with its time in milliseconds; `play` is empty for the first play. */
export interface Breach {
  guarantee: Guarantee;
  at: number;
  what: string;
  play: string;
}

/** The result of a script: that of the first play, with the breaches of all. */
export interface Report {
  /** The messages that channels accepted, in order. */
  readonly delivered: {
    at: number;
    tasks: string[];
    channel: string;
    /** The strategy's own words; `undefined` for the host's. */
    prompt?: string;
    interrupted: boolean;
  }[];
  /** The results in the inbox, by task. */
  readonly inbox: { [task: string]: { at: number; why: string } };
  /** The results that are still pending at the end. */
  readonly pending: string[];
  /** The wakes, each with its decisions or the text of an exception. */
  readonly wakes: {
    at: number;
    wake: delivery.Wake;
    pending: number;
    decided: delivery.Decision[] | string;
  }[];
  readonly breaches: Breach[];
  /** Throws `BrokenGuarantees`, with `breaches`, unless all guarantees but these held. */
  check(options?: { but?: Guarantee[] }): void;
  /** Returns the time at which a result was delivered; `undefined` if it was not. */
  deliveredAt(task: string): number | undefined;
}

/** A script as data, with the words of the harness of every language. */
export interface Script {
  channels: { id: string; kind: delivery.Channel["kind"]; says_ms?: number }[];
  script: ({ at?: number } & (
    | {
        do: "ends";
        task: string;
        status?: delivery.EndedTask["status"];
        output?: string;
        error?: string;
      }
    | { do: "activity"; channel: string; is: delivery.Channel["activity"] }
    | { do: "refuses"; channel: string; times: number }
    | { do: "mutes"; channel: string; muted: boolean }
    | { do: "leaves"; channel: string }
    | { do: "crashes"; for_ms: number }
  ))[];
  /** The task that gets the results; `desk` without it. */
  notify?: string;
  /** The end, in milliseconds; an hour after the last line without it. */
  until?: number;
  /** The result of the first play. */
  expect?: { delivered?: [at: number, tasks: string[]][]; inbox?: string[] };
}

/** A strategy, and the script that is played to it. Nothing is played before `run`. */
export interface Harness {
  /** Adds a channel on which the strategy may speak; one for text without a kind. */
  channel(id: string, kind?: delivery.Channel["kind"]): this;
  /** Adds a voice channel that is busy for `saysMs` milliseconds with each message. */
  voice(id: string, saysMs: number): this;
  /** Sets the time of the following lines, in milliseconds after the beginning. */
  at(ms: number): this;
  /** Completes a background task with that answer. */
  completes(task: string, output: string): this;
  /** Ends a background task with another status and an error. */
  ends(task: string, status: delivery.EndedTask["status"], error: string): this;
  /** Completes tasks in the same moment: `NAME-0`, `NAME-1` and so on. */
  burst(name: string, count: number): this;
  /** Makes a channel busy, or idle again. */
  activity(channel: string, activity: delivery.Channel["activity"]): this;
  /** Makes a channel reject its next messages. */
  refuses(channel: string, times: number): this;
  mutes(channel: string): this;
  unmutes(channel: string): this;
  /** Removes a channel from the room. */
  leaves(channel: string): this;
  /** Stops the host for this many milliseconds; the answer to the next wake is lost. */
  crashes(forMs: number): this;
  /**
   * Plays the script four times: unchanged, again with the same result, with everything of one
   * moment joined into one wake, and with the first answer to each wake lost, as in a crash.
   */
  run(): Report;
}

/** Returns the harness of a strategy: a room without channels, and a script that is data or empty. */
export function harness(
  strategy: {
    decide(wake: delivery.Wake, context: delivery.Context): delivery.Decision[];
  },
  parts?: { config?: { [key: string]: Json }; script?: Script },
): Harness;

/** Returns an answer of the model that the host takes, and that does not end the task. */
export function answer(content: string, parts?: Partial<JudgedAnswer>): JudgedAnswer;
/** Returns the end of a task that is done with this text. */
export function ending(content: string, parts?: Partial<Ending>): Ending;
/** Returns a text to check, as a gate gets it. */
export function gateInput(content: string, parts?: Partial<GateInput>): GateInput;
/** Returns an event, as an observer gets it. */
export function event(kind: string, parts?: Partial<ObservedEvent>): ObservedEvent;
