/**
 * Write Conclave plugins in JavaScript or TypeScript.
 *
 * A plugin's entry file exports its parts: tools, an agent, a gate … Each call runs in a fresh
 * instance of the component. All functions are synchronous: the host's functions return their
 * results at once, and there is no event loop. Code outside of functions runs once, when the
 * component is built, without a host.
 */

// ---------------------------------------------------------------------------------------- values

/** A value that JSON can hold. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
/** A JSON Schema (2020-12) as an object. */
export type JsonSchema = { [keyword: string]: unknown };

/**
 * The sender of a message: the agent plugin (`llm`), the host on its behalf (`agent`), a person or
 * the caller of the task (`user`), or the host itself (`system`).
 */
export type Role = "llm" | "agent" | "user" | "system";

/** A request to run a tool. */
export interface ToolCall {
  /** Unique among the calls of a message; the host assigns it if it is absent. */
  id?: string;
  /** `plugin.tool`, or a tool of the host such as `done`. */
  name: string;
  arguments?: { [key: string]: Json };
}

/** The result of one tool call, as the model reads it. */
export interface ToolResult {
  callId: string;
  name: string;
  content: string;
  isError: boolean;
}

/** A reference to content that the host stores. */
export interface Blob {
  /** Lower-case hexadecimal. */
  sha256: string;
  mediaType: string;
  /** In bytes. */
  length: number;
  /** A file name for display. */
  name?: string;
}

/** A message as the host shows it. */
export interface Message {
  /** The position in the room. */
  seq: number;
  sender: Role;
  /** The name of the task, channel or plugin that sent the message. */
  senderName: string;
  /** The task or role that the message is for; `undefined` if any of them may answer. */
  recipient?: string;
  content: string;
  toolCalls: ToolCall[];
  toolResults: ToolResult[];
  attachments: Blob[];
  /** The origins of the content: `untrusted`, `tool` or `task`. */
  labels: string[];
  extra: { [key: string]: Json };
}

/** A message that a plugin writes for a model's prompt. */
export interface Draft {
  role?: Role;
  content?: string;
  toolCalls?: ToolCall[];
  toolResults?: ToolResult[];
  attachments?: Blob[];
}

/** The tokens and the cost of model calls. */
export interface Usage {
  inputTokens: number;
  cachedInputTokens: number;
  outputTokens: number;
  /** In micro-US-dollars; `undefined` if the model's price is unknown. */
  costMicroUsd?: number;
}

// ---------------------------------------------------------------------------------------- errors

/** An access that the host denied. */
export interface Denial {
  /** Such as `files` or `tools`. */
  capability: string;
  /** The requested object, such as a path. */
  target: string;
  /** One sentence for display. */
  detail: string;
}

/** An error that the host returned. */
export class HostError extends Error {
  constructor(message: string, code: string, value?: unknown);
  /** The error's case in the contract, such as `not-found` or `quota-exceeded`. */
  readonly code: string;
  /** The value of the case, such as a limit; `undefined` if it has none. */
  readonly value: unknown;
}

/**
 * A capability that was denied. Let it pass: the operator reads which grant would allow it.
 */
export class Denied extends HostError {
  constructor(denial: Denial);
  readonly denial: Denial;
}

/** A service that is unavailable. A tool that throws it may be called again. */
export class Unavailable extends HostError {
  constructor(retryAfterMs?: number, message?: string);
  /** In milliseconds; `undefined` if unknown. */
  readonly retryAfterMs?: number;
}

/**
 * A wrong argument; the text names it, and the model gets the text. In an agent it means that the
 * model's reply was invalid.
 */
export class InvalidArguments extends Error {
  constructor(message: string);
}

// --------------------------------------------------------------------------------------- schemas

/** A schema whose values have the type `T`. */
export interface Schema<T> {
  readonly schema: JsonSchema;
  readonly isOptional: boolean;
  /** Returns a schema of a field that may be absent. */
  optional(): OptionalSchema<T>;
  /** Returns a schema of a field that has this value if it is absent. */
  default(value: T): DefaultSchema<T>;
  /** Returns a schema that allows null too. */
  nullable(): Schema<T | null>;
  /** Returns the schema with another description for the model. */
  describe(description: string): this;
  toJSON(): JsonSchema;
  /** For the inference of types only. */
  readonly _type?: T;
}

/** A field that may be absent. */
export interface OptionalSchema<T> extends Schema<T> {
  readonly _optional?: true;
}

/** A field with a default value. */
export interface DefaultSchema<T> extends Schema<T> {
  readonly _default?: true;
}

/** The type of the values of a schema. */
export type Infer<S> = S extends Schema<infer T> ? T : unknown;

type Fields = { [name: string]: Schema<any> };
type OptionalNames<F> = {
  [N in keyof F]: F[N] extends { readonly _optional?: true } ? N : never;
}[keyof F];
type ObjectOf<F> = { [N in Exclude<keyof F, OptionalNames<F>>]: Infer<F[N]> } & {
  [N in OptionalNames<F>]?: Infer<F[N]>;
};
type Flat<T> = { [K in keyof T]: T[K] } & {};

interface TextKeywords {
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  format?: string;
}
interface NumberKeywords {
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
}
interface ArrayKeywords {
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
}

/** Builds JSON Schemas. Descriptions are for the model. */
export const s: {
  string(description?: string, keywords?: TextKeywords): Schema<string>;
  number(description?: string, keywords?: NumberKeywords): Schema<number>;
  integer(description?: string, keywords?: NumberKeywords): Schema<number>;
  boolean(description?: string): Schema<boolean>;
  enum<const V extends readonly (string | number)[]>(
    values: V,
    description?: string,
  ): Schema<V[number]>;
  literal<const V extends string | number | boolean | null>(
    value: V,
    description?: string,
  ): Schema<V>;
  any(description?: string): Schema<any>;
  array<T>(items: Schema<T>, description?: string, keywords?: ArrayKeywords): Schema<T[]>;
  /** An object with any keys. */
  record<T>(values: Schema<T>, description?: string): Schema<{ [key: string]: T }>;
  union<const C extends readonly Schema<any>[]>(
    choices: C,
    description?: string,
  ): Schema<Infer<C[number]>>;
  /** An object with these fields and no others. */
  object<F extends Fields>(fields: F, description?: string): Schema<Flat<ObjectOf<F>>>;
};

// ----------------------------------------------------------------------------------------- tools

/** The result of a tool call. Each part may be absent. */
export class Outcome {
  constructor(parts?: {
    content?: string;
    value?: unknown;
    attachments?: Blob[];
    followUpCalls?: ToolCall[];
  });
  /** The text for the model. */
  content?: string;
  /** The structured result. */
  value?: unknown;
  attachments: Blob[];
  /** Calls that run next, on behalf of the calling agent. */
  followUpCalls: ToolCall[];

  // Outcomes that control the task of the calling agent. The plugin needs the `route` grant with
  // the name of the tool of the host.

  /** Ends the task with this content. */
  static done(content: Json): Outcome;
  /** Ends the task with this content, and with calls for its caller. */
  static agentDone(content: Json, calls: ToolCall[]): Outcome;
  /** Ends the task; the call with these arguments is its result. */
  static result(values: { [key: string]: Json }): Outcome;
  /** Ends the task and all its callers; the call with these arguments is the result. */
  static finalResult(values: { [key: string]: Json }): Outcome;
  /** Passes on the message that the agent was given. */
  static pass(): Outcome;
  /** Ends the task with the message that the agent was given. */
  static donePass(): Outcome;
  /** Passes the message that the agent was given on to another task. */
  static forward(task: string): Outcome;
  /** Sends a text to another task, or to `user`. */
  static send(to: string, content: string): Outcome;
  /** Sends a text and calls to another task. */
  static agentSend(to: string, content: string, calls?: ToolCall[]): Outcome;
  /** Sends a text to the task that is its recipient. */
  static recipientMessage(recipient: string, content: string): Outcome;
  /** Removes the agent's `n`-th message, from 1, and all that followed; `content` replaces it. */
  static rewind(n: number, content: string): Outcome;
}

/** The description of a tool. */
export interface ToolSpec {
  /** Lower-case words with `_` between; unique within the plugin. */
  name: string;
  /** For the model: what the tool does, and when to use it. */
  description: string;
  /** The schema of the arguments: an object. Without it there are none. */
  input?: Schema<any> | JsonSchema;
  /** The schema of the structured result; without it there is none. */
  output?: Schema<any> | JsonSchema;
  /** True if a repeated call with the same call id has no further effect. */
  idempotent?: boolean;
  /** A second name, for display and for done sequences. */
  title?: string;
  /** The limit of a result in tokens. */
  resultTokens?: number;
  /** The limit of a result in tokens, after the agent has answered it. */
  retainedTokens?: number;
  /** Examples of a call, for models that write calls as text. */
  examples?: { thought?: string; arguments: { [key: string]: Json } }[];
}

/** A tool. */
export interface Tool<A = any> {
  readonly spec: {
    readonly name: string;
    readonly description: string;
    readonly input: JsonSchema;
    readonly output?: JsonSchema;
    readonly idempotent: boolean;
  };
  readonly run: (values: A) => unknown;
  /** Checks the arguments and runs the tool, as a call of the host does. */
  call(values: unknown): Outcome;
}

type Values<S> = S extends Schema<infer T> ? T : { [key: string]: any };

/**
 * Returns a tool. `run` gets the arguments after they were checked; a wrong one is an
 * `InvalidArguments` error with its path. A text, a number or a boolean is the content, an object
 * or a list the structured result, and `undefined` no result. An exception is an error with one
 * line for the model; its stack goes to the plugin's log.
 */
export function tool<
  S extends Schema<any> | JsonSchema = {},
  O extends Schema<any> | JsonSchema | undefined = undefined,
>(
  definition: Omit<ToolSpec, "input" | "output"> & {
    input?: S;
    output?: O;
    run(values: Values<S>): O extends Schema<infer T> ? T | Outcome : unknown;
  },
): Tool<Values<S>>;

/** A set of tools that are known only from the plugin's settings. */
export interface Toolset {
  /** Returns the tools, when the plugin is loaded. Settings can be read; nothing is granted. */
  list(): ToolSpec[];
  /** Runs one of the tools. */
  call(name: string, values: { [key: string]: any }): unknown;
}

/** Returns a set of tools. */
export function toolset(definition: Toolset): Toolset;
export function toolset(definition: new () => Toolset): Toolset;

// ---------------------------------------------------------------------------------------- agents

/** The state of a node of the plan. */
export type PlanState = "open" | "in-progress" | "completed" | "verified" | "abandoned";

/** An action of an agent, in the cases of the contract. */
export type Action =
  | { tag: "null" }
  | { tag: "reply"; val: Reply }
  | { tag: "run"; val: { command: string; background: boolean } }
  | { tag: "kill"; val: number }
  | { tag: "run-cell"; val: { code: string; kernelInitCode: string } }
  | { tag: "browse"; val: string }
  | { tag: "read"; val: { path: string; start: number; end: number } }
  | { tag: "write"; val: { path: string; content: string; start: number; end: number } }
  | { tag: "recall"; val: string }
  | { tag: "add-task"; val: { parent: string; goal: string; subtasks: Json } }
  | { tag: "modify-task"; val: { taskId: string; state: PlanState } }
  | { tag: "delegate"; val: { task: string; inputs: Json } }
  | { tag: "delegate-task"; val: BackgroundTask }
  | { tag: "think"; val: string }
  | { tag: "talk"; val: string }
  | { tag: "finish"; val: Json }
  | { tag: "reject"; val: Json }
  | { tag: "custom"; val: { name: string; arguments: Json } };

/** Text, tool calls, or both. */
export interface Reply {
  /** The id of the completion that produced the reply. */
  completion?: string;
  content?: string;
  toolCalls?: ToolCall[];
  /** The task or role that should answer next. */
  recipient?: string;
  attachments?: Blob[];
}

/** An observation: the host's answer to an action, or an event that no action requested. */
export type Observation =
  | { tag: "null" }
  | { tag: "command"; val: CommandOutput }
  | { tag: "cell"; val: { code: string; output: string } }
  | { tag: "browsed"; val: { url: string; status: number; content: string; isError: boolean } }
  | { tag: "file"; val: { path: string; content: string } }
  | { tag: "written"; val: string }
  | { tag: "recalled"; val: string[] }
  | { tag: "delegated"; val: { task: string; outputs: Json } }
  | { tag: "tool"; val: ToolOutput }
  | { tag: "success"; val: string }
  | { tag: "error"; val: string }
  | { tag: "custom"; val: { name: string; content: string; extras: Json } };

/** The output of a command; `commandId` is -1 for a foreground command. */
export interface CommandOutput {
  commandId: number;
  command: string;
  exitCode: number;
  content: string;
}

/** The result of a tool call of the previous step. */
export interface ToolOutput {
  callId: string;
  name: string;
  content: string;
  value?: Json;
  isError: boolean;
}

/** The result of a step: an action with its reason. */
export interface Turn {
  action: Action;
  thought: string;
  /** Wait for the user's answer before the task continues. */
  waitForResponse: boolean;
  extra: { [key: string]: Json };
}

/** Returns the turn with the text that the agent's history holds in place of the action's JSON. */
export function withText(turn: Turn, text: string): Turn;

/** A form of the actions and observations of a log. */
export type Era = "2024-07" | "2025-11";

/**
 * Parses an action that a model wrote as JSON, alone or surrounded by words. A list of `message` and
 * `call_tool_mcp` becomes one reply. Throws `InvalidArguments`, which names the problem and the
 * remedy for the model.
 */
export function turnFromJson(text: string): Turn;
/** Does the same for JSON that is parsed already. */
export function turnFromValue(value: unknown): Turn;
/** Returns a turn in the form of an era. Several tool calls are several actions, and so a list. */
export function turnToJson(turn: Turn, era?: Era): Json;
/** Returns the observation of a form of either era. Throws `InvalidArguments`. */
export function observationFromJson(value: unknown): Observation;
/** Returns an observation in the form of an era. */
export function observationToJson(observation: Observation, era?: Era): { [key: string]: Json };
/** Returns the first JSON object, or list of objects, in a text. Throws `InvalidArguments`. */
export function valueIn(text: string): any;

/** The options of every verb. */
export interface TurnOptions {
  /** The reason for the action, for display and logs. */
  thought?: string;
  /** Wait for the user's answer before the task continues. */
  waitForUser?: boolean;
  /** The limit of steps of the turn's delegates, or of the sub-task that answers it. */
  turns?: number;
  /** Values for which the contract has no field. */
  extra?: { [key: string]: Json };
  /** The text that the agent's history holds in place of the action's JSON. */
  text?: string;
}

/** Says something to the next responder, or to the task or role `to`. */
export function say(
  content: string,
  options?: TurnOptions & { to?: string; attachments?: Blob[] },
): Turn;
/** Calls a tool; its result arrives with the next step. */
export function callTool(
  name: string,
  values?: { [key: string]: Json },
  options?: TurnOptions & { to?: string; content?: string },
): Turn;
/** Calls tools; independent calls run at the same time. */
export function callTools(
  calls: ToolCall[],
  options?: TurnOptions & { to?: string; content?: string },
): Turn;
/** Returns the turn of a completion: its text, its tool calls, and its id. */
export function replyWith(completion: model.Completion, options?: TurnOptions): Turn;
/** Ends the task with its answer. */
export function finish(answer: unknown, options?: TurnOptions): Turn;
/** Ends the task without an answer. */
export function reject(reason: unknown, options?: TurnOptions): Turn;

/** Messages, oldest first. Only those that are read are fetched from the host. */
export interface History extends Iterable<Message> {
  readonly length: number;
  /** Returns the message at an index; a negative one counts from the end. */
  at(index: number): Message | undefined;
  slice(start?: number, end?: number): Message[];
  newestFirst(): Iterable<Message>;
}

/** An action with its observation. */
export interface PastAction {
  action?: Action;
  observation?: Observation;
  /** The position of its message in the room. */
  seq: number;
}

/** The task as it was when the call began. Each property asks the host. */
export interface View {
  /** The task's name in the operator's config. */
  readonly taskName: string;
  /** The inputs from the caller, besides the message: an object. */
  readonly inputs: any;
  /** The message that waits for an answer; `undefined` if the task was started without one. */
  readonly pending: Message | undefined;
  /** The agent's history, with the pending message. */
  readonly history: History;
  /** The actions and observations since the agent's previous step. */
  readonly sinceLastStep: PastAction[];
  /** The observations since the agent's previous step, oldest first. */
  readonly observations: Observation[];
  readonly lastObservation: Observation | undefined;
  /** The errors since the previous step. */
  readonly errors: string[];
  /** The file that the previous step read. */
  readonly file: { path: string; content: string } | undefined;
  /** The outputs of commands since the previous step. */
  readonly commandOutputs: CommandOutput[];
  /** The results of the tools that the previous step called. */
  readonly toolOutputs: ToolOutput[];
  /** The user's latest message. */
  readonly latestUserMessage: string | undefined;
  readonly plan: any;
  /** The id of the plan's node that is in progress. */
  readonly currentPlanNode: string | undefined;
  /** The outputs of the agent's latest `finish` or `reject`; null before the first. */
  readonly outputs: any;
  /** The last error that was reported to the agent. */
  readonly lastError: string | undefined;
  /** The tools that the agent may call. */
  readonly tools: { name: string; description: string; inputSchema: JsonSchema }[];
  /** The tasks that the agent may delegate or send messages to. */
  readonly peers: { name: string; description: string }[];
  /** The rest of each budget; `undefined` for no limit. */
  readonly remaining: {
    turns?: number;
    tokens?: number;
    costMicroUsd?: number;
    wallMs?: number;
    modelCalls?: number;
    toolCalls?: number;
  };
  /** The usage of the run. */
  readonly metrics: {
    turns: number;
    tokens: number;
    costMicroUsd: number;
    modelCalls: number;
    toolCalls: number;
  };
  /** The number of delegations above this task; 0 for the entry task. */
  readonly delegateLevel: number;
  /** The number of earlier steps of the agent in this task. */
  readonly iteration: number;
  /** The host's latest answer to a delegation, or to a question about one. */
  readonly backgroundAnswer: background.Answer | undefined;
  /** Returns the history as events of a log, in the fixed JSON form of an era. */
  events(era?: Era): { [key: string]: Json }[];
  /** Returns the actions and observations since the previous step, as events of a log. */
  newEvents(era?: Era): { [key: string]: Json }[];
  /** Returns the tool of that name in any plugin: `find` is `search.find`. */
  tool(name: string): { name: string; description: string; inputSchema: JsonSchema } | undefined;
}

/**
 * Returns an agent. Each step runs in a fresh instance: an agent's memory is the history,
 * `scratch` or `kv`. An exception becomes an observation, and the agent may try again.
 */
export function agent<
  T extends {
    step(view: View): Turn;
    /** Makes the agent a responder too; nothing leaves the answer to the next responder. */
    respond?(view: View): Turn | undefined | null | void;
  },
>(definition: T | (new () => T)): T;

/** Returns a responder. */
export function responder<T extends { respond(view: View): Turn | undefined | null | void }>(
  definition: T | (new () => T),
): T;

/** The verbs of an agent that acts. */
export namespace act {
  function nothing(options?: TurnOptions): Turn;
  /** Runs a shell command. In the background it runs beside the agent. */
  function run(command: string, options?: TurnOptions & { background?: boolean }): Turn;
  /** Stops a background command. */
  function kill(commandId: number, options?: TurnOptions): Turn;
  /** Runs a cell of code, such as a Python cell. */
  function runCell(code: string, options?: TurnOptions & { kernelInitCode?: string }): Turn;
  function browse(url: string, options?: TurnOptions): Turn;
  /** Reads lines of a file: from 0, `end` excluded, -1 for the end of the file. */
  function read(path: string, options?: TurnOptions & { start?: number; end?: number }): Turn;
  /** Replaces lines of a file: from 0, `end` excluded, -1 for the end of the file. */
  function write(
    path: string,
    content: string,
    options?: TurnOptions & { start?: number; end?: number },
  ): Turn;
  /** Queries the long-term memory. */
  function recall(query: string, options?: TurnOptions): Turn;
  /** Adds a task to the plan. `subtasks` are `{ goal, subtasks }`, nested. */
  function addTask(
    goal: string,
    options?: TurnOptions & { parent?: string; subtasks?: Json },
  ): Turn;
  function modifyTask(taskId: string, state: PlanState, options?: TurnOptions): Turn;
  /** Runs another task within this run, and waits for its outputs. */
  function delegate(task: string, inputs?: { [key: string]: Json }, options?: TurnOptions): Turn;
  /** Runs several tasks at once, and waits for all of them. */
  function delegateAll(
    delegates: { task: string; inputs?: { [key: string]: Json } }[],
    options?: TurnOptions,
  ): Turn;
  /** Records a thought, without any effect. */
  function think(thought: string, options?: TurnOptions): Turn;
  /** Says something to the user; the task continues. */
  function talk(text: string, options?: TurnOptions): Turn;
  /** Asks the user, and waits for the answer. */
  function ask(question: string, options?: TurnOptions): Turn;
  function browseInteractive(code: string, options?: TurnOptions): Turn;
  function viewTasks(options?: TurnOptions): Turn;
  function trackTasks(
    tasks: { title: string; status: "todo" | "in_progress" | "done"; notes?: string }[],
    options?: TurnOptions,
  ): Turn;
  /** Asks the host to shorten the agent's history. */
  function requestCondensation(options?: TurnOptions): Turn;
  /**
   * Calls a tool of an MCP server by its name, or by `server.tool` if two servers have it. It is a
   * tool like any other, so this is `callTool` for agents that know this action.
   */
  function callMcp(
    tool: string,
    values?: { [key: string]: Json },
    options?: TurnOptions & { to?: string; content?: string },
  ): Turn;
  /**
   * Sends a text and calls to another task. Only a responder may, since it is a tool of the host for
   * handlers; it needs `route` with the tool's name.
   */
  function agentSend(to: string, content: string, calls?: ToolCall[], options?: TurnOptions): Turn;
  /** Sends a text to a recipient with the host's tool of that name, where the task offers it. */
  function recipientMessage(recipient: string, content: string, options?: TurnOptions): Turn;
  /** Returns the JSON of these actions for a model's prompt, one per line; of all without names. */
  function form(...names: string[]): string;
  /** Returns an action without a verb here, in the fixed JSON form. */
  function custom(name: string, values?: { [key: string]: Json }, options?: TurnOptions): Turn;
  const edit: {
    view(path: string, options?: TurnOptions): Turn;
    /** Shows lines, which count from 1; a `last` of -1 is the end of the file. */
    viewLines(path: string, first: number, last: number, options?: TurnOptions): Turn;
    /** Creates a file, which must not exist. */
    create(path: string, text: string, options?: TurnOptions): Turn;
    /** Replaces a text that the file has exactly once. */
    replace(path: string, old: string, text: string, options?: TurnOptions): Turn;
    /** Inserts after a line; 0 is the beginning of the file. */
    insertAfter(path: string, line: number, text: string, options?: TurnOptions): Turn;
    /** Reverts the last edit of the file. */
    undo(path: string, options?: TurnOptions): Turn;
  };
}

/** A background task, as the contract has it; `background.start` builds it. */
export interface BackgroundTask {
  worker: string;
  description: string;
  context: Json;
  shareChannels: string[];
  brief?: string;
  conversationMessages: number;
  wait: boolean;
  structured?: { schema?: JsonSchema; retries: number };
  deliver: { tag: "as-configured" } | { tag: "inbox" } | { tag: "strategy"; val: string };
  resultForm?: "agent-turn" | "text";
  notify?: string;
  deadlineMs?: number;
  turns?: number;
  onClose?: "cascade" | "detach" | "finish-silently";
  key?: string;
}

/** Work that continues beside the agent, in a room of its own. It needs the `delegate` grant. */
export namespace background {
  /** The host's answer to a delegation, or to a question about one. */
  type Answer =
    | { tag: "started"; taskId: string; worker: string }
    | { tag: "ended"; taskId: string; status: string; output?: string; reason?: string }
    /** The answer to `cancel` or `tell`: whether it took effect. */
    | { tag: "done"; taskId: string; done: boolean }
    | { tag: "listed"; tasks: Answer[] }
    | { tag: "refused"; code: string; message: string; allowed: string[] };

  /** Starts a background task. `view.backgroundAnswer` has the answer in the next step. */
  function start(
    worker: string,
    description: string,
    options?: {
      /** Facts for the worker: its inputs. */
      context?: { [key: string]: Json };
      /** The channels of this room that the worker may use too. */
      shareChannels?: string[];
      /** The worker's message, in place of the description. */
      brief?: string;
      /** The number of the newest messages that the worker gets as fenced data. */
      conversationMessages?: number;
      /** Wait for the result, which is then the observation. */
      wait?: boolean;
      /** Require a result by `submit_result`; `retries` is the number of reminders. */
      structured?: { schema?: JsonSchema; retries?: number };
      /** The delivery strategy, or the inbox, in place of the operator's choice. */
      deliver?: { strategy: string } | { inbox: true };
      /** Whether an agent takes a turn about the result, or people read its text. */
      resultForm?: "agent-turn" | "text";
      /** The task to notify. */
      notify?: string;
      /** The time limit in milliseconds. */
      deadlineMs?: number;
      /** The limit of steps. */
      turns?: number;
      /** What happens to the task if this one is stopped. */
      onClose?: "cascade" | "detach" | "finish-silently";
      /** An idempotency key: a second delegation with it starts nothing. */
      key?: string;
      thought?: string;
      extra?: { [key: string]: Json };
    },
  ): Turn;
  /** Asks for the state of a background task; without an id, of the newest ten. */
  function status(taskId?: string, options?: TurnOptions): Turn;
  /** Stops a background task. */
  function cancel(taskId: string, options?: TurnOptions): Turn;
  /** Sends a text to a background task. */
  function tell(taskId: string, text: string, options?: TurnOptions): Turn;
  /** Returns the answer in a text; `undefined` for any other text. */
  function parseAnswer(text: string): Answer | undefined;
}

// ----------------------------------------------------------------------------------- other kinds

export namespace delivery {
  type TaskStatus = "completed" | "failed" | "cancelled" | "timed-out" | "interrupted";

  /** A background task that has ended. */
  interface EndedTask {
    taskId: string;
    worker: string;
    description: string;
    status: TaskStatus;
    output?: string;
    /** The reason for the failure; `undefined` if the task completed. */
    error?: string;
    durationMs: number;
    /** The number of failed deliveries. */
    attempts: number;
    /** The context of the delegation. */
    metadata: any;
  }

  interface Channel {
    id: string;
    kind: "text" | "web" | "voice" | "agent" | "other";
    activity: "idle" | "speaking" | "user-speaking" | "generating";
    muted: boolean;
  }

  /** The room as a decision may see it. Each property asks the host. */
  interface Context {
    readonly roomId: string;
    /** The recorded time in milliseconds since 1970. */
    readonly nowMs: number;
    /** The results that wait for delivery, oldest first. */
    readonly pendingResults: EndedTask[];
    /** The channels that the strategy may send to. */
    readonly channels: Channel[];
    /** Voice first, then any other; `undefined` if there is none. */
    readonly preferredChannel: Channel | undefined;
    /** The task to notify. */
    readonly notifiedTask: string | undefined;
  }

  /** The reason for the call. */
  type Wake =
    | { tag: "ended"; val: string }
    | { tag: "channel-idle"; val: string }
    | { tag: "timer" }
    | { tag: "send-failed"; val: string };

  type Decision =
    | {
        tag: "deliver";
        val: { tasks: string[]; channel?: string; prompt?: string; interrupt: boolean };
      }
    | { tag: "move-to-inbox"; val: string[] }
    | { tag: "wait"; val: { channel?: string; timeoutMs: number } }
    | { tag: "give-up"; val: string };

  /** Reports results by their task ids: on the preferred channel, in the host's words. */
  function deliver(
    tasks: Iterable<string>,
    options?: {
      channel?: string;
      /** The text; an agent reads it in addition to the results. */
      prompt?: string;
      /** Interrupt the channel's current output. */
      interrupt?: boolean;
    },
  ): Decision;
  /** Puts results into the inbox, for the agent's next turn. */
  function moveToInbox(tasks: Iterable<string>): Decision;
  /** Asks again after this time, or as soon as the channel is idle. */
  function wait(timeoutMs: number, channel?: string): Decision;
  /** Moves all results to the inbox, with the reason. */
  function giveUp(reason: string): Decision;
  /** Returns the decisions with this prompt in every message without one. */
  function worded(decisions: Decision[], prompt: string): Decision[];
  /**
   * The waiting time of the oldest result, kept in the scratch:
   * `const waited = new delivery.Waited(scratch.get())`, and `scratch.set(waited)` at the end.
   */
  class Waited {
    constructor(stored?: { oldest?: string; sinceMs?: number });
    oldest: string;
    sinceMs: number;
    /** Returns the milliseconds for which the first result has been seen to wait; 0 without one. */
    ms(waiting: EndedTask[], nowMs: number): number;
  }
  /** Attempts to report one result. */
  const MOST_ATTEMPTS: number;
  /** Returns the pause after this many failed deliveries; `undefined` if no attempt is left. */
  function backoffMs(attempts: number): number | undefined;
  /** Splits results by their attempts: those to report `now`, and decisions about the `rest`. */
  function due(wake: Wake, waiting: EndedTask[]): { now: string[]; rest: Decision[] };
}

/** Returns a delivery strategy: it decides when and where results are reported. */
export function strategy<
  T extends {
    decide(wake: delivery.Wake, context: delivery.Context): delivery.Decision[];
  },
>(definition: T | (new () => T)): T;

/** A text that a gate checks. */
export interface GateInput {
  point:
    | "inbound"
    | "delegate"
    | "deliver"
    | "subtask"
    | "outbound"
    | "tool-call"
    | "tool-result";
  room: string;
  channel?: string;
  fromTask?: string;
  toTask?: string;
  /** At `tool-call`, the arguments as JSON; at `tool-result`, a `ToolGateResult` as JSON. */
  text: string;
  /** Further facts, such as the sender; at tools, `ToolGateFacts`. */
  metadata: any;
}

/** The facts of a call of a tool, or of its result, for a gate. */
export interface ToolGateFacts {
  /** `plugin.tool`. */
  tool: string;
  /** The id of the call. */
  call: string;
  /** The plugin whose agent makes the call. */
  caller: string | null;
  /** The plugins that led to the call. */
  led_by: string[];
  /** `untrusted` if the call derives from outside. */
  labels: string[];
  /** With a result: the arguments that the tool was called with. */
  arguments?: any;
  is_error?: boolean;
  /** The media types of the attachments, which a gate cannot change. */
  attachments?: string[];
  /** The calls that the tool asks its agent to make next. */
  follow_up_calls?: { name: string; arguments: any }[];
}

/** The readable parts of a tool's result. */
export interface ToolGateResult {
  content?: string;
  value?: any;
  /** The tool's own words about its failure, in place of the others. */
  error?: string;
}

export type GateVerdict =
  { tag: "allow" } | { tag: "modify"; val: string } | { tag: "block"; val: string };

/** Returns a gate. An exception blocks the text. */
export function gate<T extends { check(input: GateInput): GateVerdict }>(
  definition: T | (new () => T),
): T;
/** Passes the text unchanged. */
export function allow(): GateVerdict;
/** Passes this text in place of the original. */
export function modify(text: string): GateVerdict;
/** Blocks the text, with a reason for its sender. */
export function block(reason: string): GateVerdict;

export interface RiskVerdict {
  risk: "low" | "medium" | "high";
  reason: string;
}

/** Returns a security analyzer. A tool call is a reply with that one call. An exception is `high`. */
export function analyzer<
  T extends { assess(action: Action, thought: string, view: View): RiskVerdict },
>(definition: T | (new () => T)): T;
export function low(reason?: string): RiskVerdict;
export function medium(reason?: string): RiskVerdict;
export function high(reason?: string): RiskVerdict;

/** What the next prompts leave out, by the indices of `view.history`. */
export interface Condensation {
  /** Ranges of entries to drop; the end is excluded. */
  forget?: [start: number, end: number][];
  /** Entries to shorten: `LEFT_OUT`, or `shortened(beginning, end)`. */
  mask?: { index: number; text: string }[];
  /** A text at the position of the first dropped entry. */
  summary?: string;
}

/** Returns a condenser; nothing leaves the history unchanged. */
export function condenser<
  T extends {
    condense(
      reason: "size" | "requested" | "overflow",
      view: View,
    ): Condensation | undefined | null | void;
  },
>(definition: T | (new () => T)): T;
/** The replacement for a text that is left out. */
export const LEFT_OUT: string;
/** Returns an entry's text with its own beginning and end only. */
export function shortened(beginning: string, end?: string): string;

/** Returns a long-term memory: texts that match a query, best first. */
export function memory<T extends { search(query: string, limit: number): string[] }>(
  definition: T | (new () => T),
): T;

/** An answer to the pending message, before it takes effect. */
export interface JudgedAnswer {
  message: Message;
  /** `llm`, `agent`, `user`, or the name of a sub-task. */
  responder: string;
  /** True if the host would take the answer. */
  valid: boolean;
  /** True if the answer would end the task. */
  done: boolean;
}

/** The end of a task. */
export interface Ending {
  /** Such as `DONE`. */
  status: string;
  reason: string;
  result: { text: string; value?: Json };
}

type Opinion = boolean | undefined | null | void;

/** Returns a judge. A function that is absent or returns nothing leaves the decision to the host. */
export function judge<
  T extends {
    /** Returns whether the answer becomes the pending message. */
    valid?(answer: JudgedAnswer, view: View): Opinion;
    /** Returns whether the task ends with the answer. */
    done?(answer: JudgedAnswer, view: View): Opinion;
    /** Returns the words for the agent about an answer that does not count or end the task. */
    feedback?(answer: JudgedAnswer, view: View): string | undefined | null | void;
    /** Returns the task's result in place of the host's. */
    result?(
      ending: Ending,
      view: View,
    ): string | { text: string; value?: Json } | undefined | null | void;
  },
>(definition: T | (new () => T)): T;

/** Returns a simulated user: the answer to a question, or nothing for no answer. */
export function simulatedUser<
  T extends {
    answer(question: string, view: View): string | undefined | null | void;
  },
>(definition: T | (new () => T)): T;

/** An event of a run. */
export interface ObservedEvent {
  room: string;
  /** The number of the journal record. */
  seq: number;
  /** The position among the events of that record. */
  index: number;
  /** In milliseconds since 1970. */
  time: number;
  /** Such as `task-ended`. */
  kind: string;
  task?: string;
  details: any;
}

/** Returns an observer. After an exception the same events arrive again. */
export function observer<T extends { observe(events: ObservedEvent[]): void }>(
  definition: T | (new () => T),
): T;
/** Returns the idempotency key of an event. */
export function eventKey(event: ObservedEvent): string;

/** A message to deliver. */
export interface ChannelMessage {
  /** The same for each attempt, and that of no other message. */
  id: string;
  /** The number of the attempt, from 1. */
  attempt: number;
  /** The address of the conversation; absent for a message of another one. */
  conversation?: string;
  room: string;
  text: string;
}

/** A request to a channel, whose sender is not known yet. */
export interface ChannelRequest {
  /** Names are in lower case. */
  headers: [string, string][];
  query: string;
  body: Uint8Array;
  /** In milliseconds since 1970. */
  time: number;
}

/** A message that someone wrote. All but its text is 1 to 100 printable ASCII characters. */
export interface ReceivedMessage {
  id: string;
  sender: string;
  conversation: string;
  text: string;
}

export interface ChannelRefusal {
  tag: "refused";
  val: string;
}
export type Delivery =
  | ChannelRefusal
  | { tag: "delivered"; val?: string }
  | { tag: "retry"; val: { reason: string; afterMs?: number } }
  | { tag: "unknown"; val: string };
export type Reception =
  | ChannelRefusal
  | { tag: "messages"; val: ReceivedMessage[] }
  | { tag: "answer"; val: { bodyType: "text" | "json"; body: string } };

/** Returns a channel. Side effects are refused in `received`. */
export function channel<
  T extends {
    send(message: ChannelMessage): Delivery;
    received(request: ChannelRequest): Reception;
  },
>(definition: T | (new () => T)): T;
/** The service has the message, under an id of its own. */
export function delivered(remoteId?: string): Delivery;
/** The service does not have the message, and may accept it later. */
export function retry(reason: string, afterMs?: number): Delivery;
/** The service will not accept the message; or the request does not come from the service. */
export function refused(reason: string): ChannelRefusal;
/** The service may have the message. */
export function unknown(reason: string): Delivery;
/** The messages of a request; they count only after it was verified. */
export function received(messages: ReceivedMessage[]): Reception;
/** The answer that the service wants, such as an echo of its challenge. */
export function answerWith(body: string, bodyType?: "text" | "json"): Reception;
/** Returns whether a signature is the HMAC-SHA256 of data that ends with the request's body. */
export function verifyHmac(data: string | Uint8Array, signature: Uint8Array): boolean;
/** Returns whether a token is the channel's secret. */
export function verifyToken(token: string): boolean;

// ---------------------------------------------------------------------------------- capabilities

/** Files in the granted folders. A path begins with the folder's: `/folder/notes/a.txt`. */
export namespace files {
  interface Entry {
    name: string;
    kind: "file" | "directory";
    /** In bytes; 0 for a directory. */
    length: number;
  }
  /** Returns the granted folders. */
  function roots(): { path: string; writable: boolean }[];
  /** Returns all entries of a folder, in byte order of their names. */
  function list(path: string): Entry[];
  /** Returns each entry below a folder, parents first; `enter` says which folders to enter. */
  function walk(
    path: string,
    options?: { enter?(entry: Entry & { path: string }): boolean },
  ): Iterable<Entry & { path: string }>;
  /** Returns the file's bytes; with `offset` or `length`, a part of them. */
  function read(path: string, options?: { offset?: number; length?: number }): Uint8Array;
  /** Returns the whole file as text. Throws if it is not UTF-8. */
  function readText(path: string): string;
  function readJson(path: string): any;
  /** Returns the lines of a text file, without their ends. */
  function lines(path: string): string[];
  /** Replaces the file; with `offset`, writes there. Returns the file's new length. */
  function write(
    path: string,
    data: string | Uint8Array,
    options?: { offset?: number; truncate?: boolean },
  ): number;
  /** Removes a file; succeeds if it is absent. */
  function remove(path: string): void;
}

/** A complete response, whose body the host holds. */
export interface Response {
  readonly status: number;
  /** True if the status is 200 to 299. */
  readonly ok: boolean;
  /** The headers, with names in lower case. */
  readonly headers: { [name: string]: string };
  /** The address that answered, after redirects. */
  readonly url: string;
  /** The length of the body in bytes. */
  readonly length: number;
  /** Returns the whole body, whatever the status. */
  bytes(): Uint8Array;
  /** Returns the body as text. Throws unless `ok`; `Unavailable` for 429 and 503. */
  text(): string;
  /** Returns the body as JSON. Throws unless `ok`; `Unavailable` for 429 and 503. */
  json(): any;
}

/** A secret in place of a value. The host inserts it into the request. */
export interface Secret {
  text(): string;
}

/**
 * Sends a request, and returns the whole response. A status such as 404 is a response. The host
 * follows redirects, and checks each one.
 */
export function fetch(
  url: string,
  options?: {
    /** `GET`, or `POST` if there is a body. */
    method?: string;
    headers?: { [name: string]: string | number | Secret };
    /** Parameters that are added to the address, encoded. */
    query?: { [name: string]: string | number | boolean | Secret | undefined };
    body?: string | Uint8Array;
    /** A body as JSON, with its content type. */
    json?: unknown;
    /** The time limit in milliseconds, at most the grant's. */
    timeoutMs?: number;
    extra?: { [key: string]: Json };
  },
): Response;
/** Returns a secret for a header or a parameter, after the text `before` such as `Bearer `. */
export function secret(name: string, options?: { before?: string }): Secret;

/** A private store of the plugin, durable across runs. */
export namespace kv {
  /** Returns the bytes of a key; `undefined` if it is absent. */
  function get(key: string): Uint8Array | undefined;
  function getText(key: string): string | undefined;
  function getJson(key: string): any;
  function set(key: string, data: string | Uint8Array): void;
  function setJson(key: string, value: unknown): void;
  /** Returns all keys with this prefix, in byte order. */
  function keys(prefix?: string): string[];
  function remove(key: string): void;
}

/** Secrets that the operator bound to hosts. */
export namespace secrets {
  /** Returns the text that the host replaces with the value, in requests to the bound hosts. */
  function placeholder(name: string): string;
}

/** A small private state, kept from call to call: per task, or per room for strategies. */
export namespace scratch {
  /** Returns the value; `undefined` at first. */
  function get(): any;
  /** Replaces the value. It is stored when the call returns, and discarded when the call fails. */
  function set(value: unknown): void;
  function bytes(): Uint8Array;
  function setBytes(data: string | Uint8Array): void;
}

/** Attachments: those of the messages in the view, and those that the call stored. */
export namespace blobs {
  /** Returns the bytes; with `offset` or `length`, a part of them. */
  function read(
    blob: { sha256: string },
    options?: { offset?: number; length?: number },
  ): Uint8Array;
  function put(data: string | Uint8Array, mediaType: string, name?: string): Blob;
}

/** The plugin's own settings. */
export namespace config {
  /** Returns the settings; with a schema, checked and with its defaults. */
  function get(): any;
  function get<T>(schema: Schema<T>): T;
  /** Returns the milliseconds of a duration such as `"15 s"`. */
  function durationMs(text: string): number;
}

/** Lines of the plugin's log. `console` writes there too. */
export namespace log {
  function trace(...values: unknown[]): void;
  function debug(...values: unknown[]): void;
  function info(...values: unknown[]): void;
  function warn(...values: unknown[]): void;
  function error(...values: unknown[]): void;
}

/** The progress of a long call, for display. */
export namespace progress {
  function report(done: number, total?: number, message?: string): void;
}

/** The facts about the current tool call. */
export namespace call {
  /** Returns the call's id, the same for every attempt: an idempotency key. */
  function callId(): string;
  /** Returns the number of the attempt, from 1. */
  function attempt(): number;
  function taskName(): string;
  function roomId(): string;
  /** Returns the plugin of the calling agent. */
  function caller(): string;
  /** Returns the time limit in milliseconds from the start of the call. */
  function deadlineMs(): number;
  function traceparent(): string;
}

/** The conversation of the task whose agent called the tool. It needs the `history` grant. */
export namespace history {
  /** Returns the message that carried the call, or that led to it. */
  function callingMessage(): Message;
  /** Returns the task's inputs. */
  function inputs(): any;
  /** Returns the newest messages that the grant shows. */
  function messages(): History;
}

/**
 * Calls of other tools, for the agent that called this one. They need the `tools` grant, and the
 * agent must be able to call them too: the host checks, approves, counts and journals each as a call
 * of that agent.
 */
export namespace toolbox {
  /** A tool that the call may use. */
  interface CallableTool {
    /** The name in the agent's task, such as `search.find`. */
    readonly name: string;
    readonly description: string;
    /** The JSON Schema of the arguments. */
    readonly inputSchema: any;
    /** The JSON Schema of `value`; absent if the tool returns no structured result. */
    readonly outputSchema?: any;
  }
  /** The result of a tool, uncut. */
  interface ToolAnswer {
    readonly content?: string;
    readonly value?: any;
  }
  /** Returns the tools that the call may use, in the order of the agent's task; none without the grant. */
  function tools(): CallableTool[];
  /**
   * Calls a tool and waits for its answer. Throws `Denied` without the grant, and `HostError` if the
   * tool fails, is refused to the agent, or is not approved.
   */
  function call(name: string, args?: { [name: string]: unknown }): ToolAnswer;
  /**
   * Calls tools at the same time, and returns answer or error of each, in order. More than 64 are
   * sent in batches of 64.
   */
  function callAll(
    requests: { name: string; arguments?: { [name: string]: unknown } }[],
  ): (ToolAnswer | HostError)[];
}

/**
 * Programs of the operator's machine, outside the sandbox. The operator grants whole commands; the
 * kernel confines the program, and the host journals each run.
 */
export namespace exec {
  interface RunOptions {
    /** The working directory: a path in a granted folder. An empty folder if it is absent. */
    directory?: string;
    /** The standard input. */
    input?: string | Uint8Array;
    /** A time limit in milliseconds, below that of the grant. */
    timeoutMs?: number;
  }
  interface Output {
    /** Absent if the program was stopped. */
    readonly exitCode?: number;
    /** Why it was stopped, such as `its limit timeout = 20 s`; absent if it ended by itself. */
    readonly stopped?: string;
    readonly stdout: string;
    readonly stderr: string;
    readonly stdoutBytes: Uint8Array;
    readonly stderrBytes: Uint8Array;
    /** The bytes of output beyond the grant's limit, which were dropped. */
    readonly dropped: number;
  }
  /** Returns the granted commands, such as `/usr/bin/git log *`; none without the grant. */
  function commands(): string[];
  /**
   * Runs a program, by its granted path or the path's last component, and waits for its end. Throws
   * `Denied` if the command or its directory is not granted, or the kernel cannot confine it.
   */
  function run(program: string, args?: string[], options?: RunOptions): Output;
}

/** Completions from the models that the operator granted. */
export namespace model {
  /** A part of a prompt; a text is a note in the user's role. */
  type Part =
    | string
    | { tag: "system" }
    | { tag: "history"; val: { start: number; end: number } }
    | { tag: "draft"; val: Draft };

  interface Request {
    /** The model's name in the operator's config; the default model if it is absent. */
    model?: string;
    /** `system()` and the whole `history()` if it is absent. */
    prompt?: Part[];
    /** The tools to offer; all that the agent may call if it is absent. */
    tools?: string[];
    /** The task's format if it is absent. */
    toolFormat?: "native" | "json" | "xml" | "off";
    toolChoice?: "auto" | "none" | "required" | { named: string };
    /** A JSON Schema that the reply must satisfy. */
    outputSchema?: JsonSchema | Schema<any>;
    /** Stream the text to the room while it is generated; true if it is absent. */
    stream?: boolean;
    /** `temperature`, `max-output-tokens`, `seed` … */
    options?: { [key: string]: Json };
  }

  interface Completion {
    id: string;
    content?: string;
    reasoning?: string;
    toolCalls: ToolCall[];
    stopReason: "end" | "length" | "tool-calls" | "content-filter" | "other";
    usage: Usage;
    model: string;
  }

  /** A completion in progress. Iterating yields its texts. */
  interface CompletionStream extends Iterable<string> {
    /** Waits for the whole completion. */
    completion(): Completion;
    /** Cancels the request, if it is in progress. */
    close(): void;
  }

  /** Completes the default prompt, with all tools of the agent. */
  function answer(): Completion;
  function complete(request?: Request): Completion;
  /**
   * Asks a model for the next action. Its tool calls are carried out, and its text is read as an
   * action in JSON, or by `read`. Any other text is `InvalidArguments`: the model gets the reason.
   */
  function act(request?: Request, read?: (text: string) => Turn): Turn;
  /** Starts a completion, beside others. */
  function start(request?: Request): CompletionStream;
  /** The task's system message with the tool instructions. */
  function system(): Part;
  /** Messages of the step's history; `end` is excluded. */
  function history(start?: number, end?: number): Part;
  /** A message that the plugin writes. */
  function draft(message: Draft): Part;
  /** A note of the plugin's own, in the user's role. */
  function note(content: string): Part;
  /** Returns data between two marks, for a note. `origin` completes "data that …". */
  function quoted(title: string, origin: string, data: Iterable<unknown>): string;
}
