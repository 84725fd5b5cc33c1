// The verbs of an agent that acts: one function for each action of the contract. Kinds without a
// case of their own travel as `custom`, in the fixed JSON form.

import { turn } from "./turn.js";

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

export function custom(name, values = {}, options) {
  return verb("custom", { name, arguments: values }, options);
}

function editing(path, command, values, options) {
  return custom("edit", { path, command, ...values }, options);
}
