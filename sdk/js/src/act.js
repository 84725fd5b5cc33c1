// The verbs of an agent that acts: one function for each action of the contract. Kinds without a
// case of their own travel as `custom`, in the fixed JSON form.

import { callTool, turn } from "./turn.js";

const verb = (tag, val, options) => turn({ tag, val }, options);

export const nothing = (options) => turn({ tag: "null" }, options);

export const run = (command, { background = false, ...options } = {}) =>
  verb("run", { command, background }, options);

export const kill = (commandId, options) => verb("kill", commandId, options);

export const runCell = (code, { kernelInitCode = "", ...options } = {}) =>
  verb("run-cell", { code, kernelInitCode }, options);

export const browse = (url, options) => verb("browse", url, options);

/** Lines count from 0, `end` is excluded, and -1 is the end of the file. */
export const read = (path, { start = 0, end = -1, ...options } = {}) =>
  verb("read", { path, start, end }, options);

export const write = (path, content, { start = 0, end = -1, ...options } = {}) =>
  verb("write", { path, content, start, end }, options);

export const recall = (query, options) => verb("recall", query, options);

export const addTask = (goal, { parent = "", subtasks = [], ...options } = {}) =>
  verb("add-task", { parent, goal, subtasks }, options);

export const modifyTask = (taskId, state, options) =>
  verb("modify-task", { taskId, state }, options);

export const delegate = (task, inputs = {}, options) => verb("delegate", { task, inputs }, options);

export const delegateAll = (delegates, options) =>
  custom(
    "delegate_all",
    { delegates: delegates.map(({ task, inputs = {} }) => ({ agent: task, inputs })) },
    options,
  );

export const think = (thought, options) => verb("think", thought, options);

export const talk = (text, options) => verb("talk", text, options);

export const ask = (question, options) => talk(question, { ...options, waitForUser: true });

export const browseInteractive = (code, options) =>
  custom("browse_interactive", { browser_actions: code }, options);

export const viewTasks = (options) =>
  custom("task_tracking", { command: "view", task_list: [] }, options);

export const trackTasks = (tasks, options) =>
  custom("task_tracking", { command: "plan", task_list: tasks }, options);

export const requestCondensation = (options) => custom("condensation_request", {}, options);

/** A tool of an MCP server is a tool like any other; this is `callTool` by the action's name. */
export const callMcp = (name, values = {}, options) => callTool(name, values, options);

export const agentSend = (to, content, calls = [], options) =>
  callTool("agent_send", { to, content, tools: calls.map(listed) }, options);

export const recipientMessage = (recipient, content, options) =>
  callTool("recipient_message", { intended_recipient: recipient, content }, options);

export const edit = {
  view: (path, options) => editing(path, "view", {}, options),
  create: (path, text, options) => editing(path, "create", { file_text: text }, options),
  replace: (path, old, text, options) =>
    editing(path, "str_replace", { old_str: old, new_str: text }, options),
  insertAfter: (path, line, text, options) =>
    editing(path, "insert", { insert_line: line, new_str: text }, options),
  undo: (path, options) => editing(path, "undo_edit", {}, options),
  // The fixed form of an edit has no range, but the `read` of the same era has one.
  viewLines: (path, first, last, options) =>
    custom("read", { path, impl_source: "oh_aci", view_range: [first, last] }, options),
};

/** The arguments and the meaning of the actions, for a model's prompt. */
const FORMS = {
  run: ['"command": "ls"', "runs a command in the shell"],
  run_ipython: ['"code": "1 + 1"', "runs a Python cell"],
  read: ['"path": "/folder/a.md"', "reads a file"],
  write: ['"path": "/folder/a.md", "content": "text"', "writes a file"],
  edit: [
    '"path": "/folder/a.md", "command": "str_replace", "old_str": "a", "new_str": "b"',
    "replaces a text that occurs once",
  ],
  browse: ['"url": "https://example.org"', "opens a page"],
  recall: ['"query": "words"', "searches your memory"],
  call_tool_mcp: ['"name": "plugin.tool", "arguments": {}', "calls a tool"],
  delegate: [
    '"agent": "task", "inputs": {"task": "what to do"}',
    "hands work to another agent and waits",
  ],
  add_task: [
    '"parent": "", "goal": "what", "subtasks": [{"goal": "first part"}]',
    "adds to the plan; parent is an id, empty at the top",
  ],
  modify_task: [
    '"task_id": "0", "state": "completed"',
    "open, in_progress, completed, verified or abandoned",
  ],
  think: ['"thought": "why"', "notes a thought"],
  message: [
    '"content": "text", "wait_for_response": true',
    "says something to the user, and waits or does not",
  ],
  finish: ['"outputs": {"answer": "text"}', "ends the task with an answer"],
  reject: ['"outputs": {"reason": "text"}', "gives up, and says why"],
};

/** Returns the JSON of these actions for a model's prompt, one per line; of all without names. */
export const form = (...names) =>
  Object.entries(FORMS)
    .filter(([name]) => names.length === 0 || names.includes(name))
    .map(([name, [args, meaning]]) => `{"action": "${name}", "args": {${args}}}  ${meaning}`)
    .join("\n");

export function custom(name, values = {}, options) {
  return verb("custom", { name, arguments: values }, options);
}

const listed = ({ name, arguments: values = {} }) => ({ name, arguments: values });

function editing(path, command, values, options) {
  return custom("edit", { path, command, ...values }, options);
}
