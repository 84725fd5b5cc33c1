// The fixed JSON form of actions and observations: the kinds, their eras and their fields.
//
// A field has a type, a default, and its presence in 2024-07 and in 2025-11: `R` is required, `O`
// optional, `-` absent. The order of the kinds and of the fields is the order of the messages about
// them.

export const ERAS = ["2024-07", "2025-11"];

/** `eras` is `BOTH`, `OLD`, `NEW`, or `OURS` for neither. */
const kind = (eras, fields) => ({ eras, fields });

/** Returns whether an era has a kind. */
export const isIn = ({ eras }, era) =>
  eras === "BOTH" || eras === (era === "2024-07" ? "OLD" : "NEW");

/** Returns the fields of a kind that are written in an era. An era without the kind has all. */
export function namesIn(kind, era) {
  const names = Object.keys(kind.fields);
  if (!isIn(kind, era)) return names;
  return names.filter((name) => kind.fields[name][2][ERAS.indexOf(era)] !== "-");
}

/** Returns the fields that every era with the kind requires. */
export function requiredOf({ eras, fields }) {
  const wanted = { BOTH: [0, 1], OLD: [0] }[eras] ?? [1];
  return Object.keys(fields).filter((name) => wanted.every((at) => fields[name][2][at] === "R"));
}

/** Returns all fields of a kind with their defaults. */
export const defaultsOf = ({ fields }) =>
  Object.fromEntries(
    Object.entries(fields).map(([name, [, value]]) => [name, JSON.parse(JSON.stringify(value))]),
  );

/** The metadata of a command of which nothing is known. */
export const UNKNOWN_COMMAND = {
  exit_code: -1,
  pid: -1,
  username: null,
  hostname: null,
  working_dir: null,
  py_interpreter_path: null,
  prefix: "",
  suffix: "",
};

export const ACTIONS = {
  null: kind("BOTH", {}),
  run: kind("BOTH", {
    command: ["text", "", "RR"],
    background: ["flag", false, "O-"],
    is_input: ["flag", false, "-O"],
    thought: ["text", "", "OO"],
    blocking: ["flag", false, "-O"],
    is_static: ["flag", false, "-O"],
    cwd: ["?text", null, "-O"],
    hidden: ["flag", false, "-O"],
    confirmation_state: ["confirmation", "confirmed", "-O"],
    security_risk: ["risk", -1, "-O"],
  }),
  kill: kind("OLD", {
    command_id: ["id", -1, "R-"],
    thought: ["text", "", "O-"],
  }),
  run_ipython: kind("BOTH", {
    code: ["text", "", "RR"],
    thought: ["text", "", "OO"],
    include_extra: ["flag", true, "-O"],
    confirmation_state: ["confirmation", "confirmed", "-O"],
    security_risk: ["risk", -1, "-O"],
    kernel_init_code: ["text", "", "OO"],
  }),
  browse: kind("BOTH", {
    url: ["text", "", "RR"],
    thought: ["text", "", "OO"],
    security_risk: ["risk", -1, "-O"],
    return_axtree: ["flag", false, "-O"],
  }),
  browse_interactive: kind("BOTH", {
    browser_actions: ["text", "", "RR"],
    thought: ["text", "", "OO"],
    browsergym_send_msg_to_user: ["text", "", "OO"],
    security_risk: ["risk", -1, "-O"],
    return_axtree: ["flag", false, "-O"],
  }),
  read: kind("BOTH", {
    path: ["text", "", "RR"],
    start: ["whole", 0, "OO"],
    end: ["whole", -1, "OO"],
    thought: ["text", "", "OO"],
    security_risk: ["risk", -1, "-O"],
    impl_source: ["reader", "default", "-O"],
    view_range: ["?wholes", null, "-O"],
  }),
  write: kind("BOTH", {
    path: ["text", "", "RR"],
    content: ["text", "", "RR"],
    start: ["whole", 0, "OO"],
    end: ["whole", -1, "OO"],
    thought: ["text", "", "OO"],
    security_risk: ["risk", -1, "-O"],
  }),
  edit: kind("NEW", {
    path: ["text", "", "-R"],
    command: ["?text", "", "-O"],
    file_text: ["?text", null, "-O"],
    old_str: ["?text", null, "-O"],
    new_str: ["?text", null, "-O"],
    insert_line: ["?whole", null, "-O"],
    content: ["text", "", "-O"],
    start: ["whole", 1, "-O"],
    end: ["whole", -1, "-O"],
    thought: ["text", "", "-O"],
    security_risk: ["risk", -1, "-O"],
    impl_source: ["editor", "oh_aci", "-O"],
  }),
  recall: kind("BOTH", {
    recall_type: ["?recall", null, "-R"],
    query: ["text", "", "RO"],
    thought: ["text", "", "OO"],
  }),
  add_task: kind("OLD", {
    parent: ["text", "", "R-"],
    goal: ["text", "", "R-"],
    subtasks: ["list", [], "O-"],
    thought: ["text", "", "O-"],
  }),
  modify_task: kind("OLD", {
    task_id: ["id", "", "R-"],
    state: ["text", "", "R-"],
    thought: ["text", "", "O-"],
  }),
  think: kind("NEW", {
    thought: ["text", "", "-O"],
  }),
  talk: kind("OURS", {
    content: ["text", "", "-R"],
  }),
  finish: kind("BOTH", {
    final_thought: ["text", "", "-O"],
    outputs: ["object", {}, "OO"],
    thought: ["text", "", "OO"],
  }),
  reject: kind("BOTH", {
    outputs: ["object", {}, "OO"],
    thought: ["text", "", "OO"],
  }),
  delegate: kind("BOTH", {
    agent: ["text", "", "RR"],
    inputs: ["object", {}, "RR"],
    thought: ["text", "", "OO"],
  }),
  message: kind("BOTH", {
    content: ["text", "", "RR"],
    file_urls: ["?texts", null, "-O"],
    image_urls: ["?texts", null, "-O"],
    wait_for_response: ["flag", false, "OO"],
    security_risk: ["risk", -1, "-O"],
  }),
  change_agent_state: kind("BOTH", {
    agent_state: ["text", "", "RR"],
    thought: ["text", "", "OO"],
  }),
  system: kind("NEW", {
    content: ["text", "", "-R"],
    tools: ["?list", null, "-O"],
    openhands_version: ["?text", null, "-O"],
    agent_class: ["?text", null, "-O"],
  }),
  condensation: kind("NEW", {
    forgotten_event_ids: ["?wholes", null, "-O"],
    forgotten_events_start_id: ["?whole", null, "-O"],
    forgotten_events_end_id: ["?whole", null, "-O"],
    summary: ["?text", null, "-O"],
    summary_offset: ["?whole", null, "-O"],
  }),
  condensation_request: kind("NEW", {}),
  call_tool_mcp: kind("NEW", {
    name: ["text", "", "-R"],
    arguments: ["object", {}, "-O"],
    thought: ["text", "", "-O"],
    security_risk: ["risk", -1, "-O"],
  }),
  task_tracking: kind("NEW", {
    command: ["text", "view", "-O"],
    task_list: ["list", [], "-O"],
    thought: ["text", "", "-O"],
  }),
  loop_recovery: kind("NEW", {
    option: ["whole", 1, "-O"],
  }),
  delegate_task: kind("OURS", {
    agent: ["text", "", "-R"],
    task: ["text", "", "-R"],
    context: ["object", {}, "-O"],
    share_channels: ["texts", [], "-O"],
    thought: ["text", "", "-O"],
  }),
  delegate_all: kind("OURS", {
    delegates: ["delegates", [], "-R"],
    thought: ["text", "", "-O"],
  }),
};

export const OBSERVATIONS = {
  null: kind("BOTH", {
    content: ["text", "", "OO"],
  }),
  run: kind("BOTH", {
    content: ["text", "", "OO"],
    command: ["text", "", "RR"],
    metadata: ["metadata", UNKNOWN_COMMAND, "-O"],
    hidden: ["flag", false, "-O"],
  }),
  run_ipython: kind("BOTH", {
    content: ["text", "", "OO"],
    code: ["text", "", "RR"],
    image_urls: ["?texts", null, "-O"],
  }),
  browse: kind("BOTH", {
    content: ["text", "", "OO"],
    url: ["text", "", "RR"],
    trigger_by_action: ["text", "", "-R"],
    screenshot: ["text", "", "RO"],
    screenshot_path: ["?text", null, "-O"],
    set_of_marks: ["text", "", "-O"],
    status_code: ["whole", 200, "O-"],
    error: ["flag", false, "OO"],
    goal_image_urls: ["texts", [], "-O"],
    open_pages_urls: ["texts", [], "OO"],
    active_page_index: ["whole", -1, "OO"],
    dom_object: ["object", {}, "OO"],
    axtree_object: ["object", {}, "OO"],
    extra_element_properties: ["object", {}, "OO"],
    last_browser_action: ["text", "", "OO"],
    last_browser_action_error: ["text", "", "OO"],
    focused_element_bid: ["text", "", "OO"],
    filter_visible_only: ["flag", false, "-O"],
  }),
  read: kind("BOTH", {
    content: ["text", "", "OO"],
    path: ["text", "", "RR"],
    impl_source: ["reader", "default", "-O"],
  }),
  write: kind("BOTH", {
    content: ["text", "", "OO"],
    path: ["text", "", "RR"],
  }),
  edit: kind("NEW", {
    content: ["text", "", "-O"],
    path: ["text", "", "-O"],
    prev_exist: ["flag", false, "-O"],
    old_content: ["?text", null, "-O"],
    new_content: ["?text", null, "-O"],
    impl_source: ["editor", "llm_based_edit", "-O"],
    diff: ["?text", null, "-O"],
    _diff_cache: ["?text", null, "-O"],
  }),
  recall: kind("BOTH", {
    content: ["text", "", "OO"],
    memories: ["texts", [], "R-"],
    role: ["text", "assistant", "O-"],
    recall_type: ["?recall", null, "-R"],
    repo_name: ["text", "", "-O"],
    repo_directory: ["text", "", "-O"],
    repo_branch: ["text", "", "-O"],
    repo_instructions: ["text", "", "-O"],
    runtime_hosts: ["wholes by name", {}, "-O"],
    additional_agent_instructions: ["text", "", "-O"],
    date: ["text", "", "-O"],
    custom_secrets_descriptions: ["texts by name", {}, "-O"],
    conversation_instructions: ["text", "", "-O"],
    working_dir: ["text", "", "-O"],
    microagent_knowledge: ["knowledge", [], "-O"],
  }),
  delegate: kind("BOTH", {
    content: ["text", "", "OO"],
    outputs: ["object", {}, "RR"],
  }),
  success: kind("BOTH", {
    content: ["text", "", "OO"],
  }),
  error: kind("BOTH", {
    content: ["text", "", "OO"],
    error_id: ["text", "", "-O"],
  }),
  agent_state_changed: kind("BOTH", {
    content: ["text", "", "OO"],
    agent_state: ["text", "", "RR"],
    reason: ["text", "", "-O"],
  }),
  user_rejected: kind("NEW", {
    content: ["text", "", "-O"],
  }),
  condense: kind("NEW", {
    content: ["text", "", "-O"],
  }),
  think: kind("NEW", {
    content: ["text", "", "-O"],
  }),
  mcp: kind("NEW", {
    content: ["text", "", "-O"],
    name: ["text", "", "-O"],
    arguments: ["object", {}, "-O"],
  }),
  download: kind("NEW", {
    content: ["text", "", "-O"],
    file_path: ["text", "", "-R"],
  }),
  task_tracking: kind("NEW", {
    content: ["text", "", "-O"],
    command: ["text", "", "-O"],
    task_list: ["list", [], "-O"],
  }),
  loop_detection: kind("NEW", {
    content: ["text", "", "-O"],
  }),
};
