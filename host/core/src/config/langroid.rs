//! Keys of Langroid's tasks that this host lacks, with their replacement in `[tasks.NAME]`. Only
//! help texts; no such key is accepted.

/// A key of Langroid, and its replacement.
const KEYS: &[(&str, &str)] = &[
    ("name", "leave it out: a task's name is that of its table, `[tasks.NAME]`"),
    ("system_message", "write `system = \"…\"`"),
    ("sub_tasks", "write `subtasks = [\"…\"]`"),
    ("add_sub_task", "write `subtasks = [\"…\"]`"),
    ("max_turns", "write `turns = 10`, or `task_turns = 20` in [limits.run] for all tasks"),
    ("max_cost", "write `cost_usd = 0.50` in [limits.run]"),
    ("max_tokens", "write `tokens = 100_000` in [limits.run]"),
    ("max_time", "write `wall = \"5 min\"` in [limits.run]"),
    ("session_id", "leave it out: what a run may use up is said in [limits.run]"),
    ("return_type", "write `returns = \"int\"`, or another of its types"),
    ("default_return_type", "write `returns = \"int\"`, or another of its types"),
    ("use_tools", "write `tool_format = \"json\"`"),
    ("use_functions_api", "write `tool_format = \"native\"`"),
    ("use_tools_api", "write `tool_format = \"native\"`"),
    ("handle_llm_no_tool", "write `on_no_tool_call = \"done\"`"),
    ("inf_loop_cycle_len", "write `loop_detection = { cycle_len = 10 }`"),
    ("inf_loop_dominance_factor", "write `loop_detection = { dominance = 1.5 }`"),
    ("inf_loop_wait_factor", "write `loop_detection = { repeats = 5 }`"),
    ("addressing_prefix", "write `text_rules = { address_prefix = \"|@|\" }`"),
    ("recognize_string_signals", "write `text_rules = { signals = true }`"),
    ("recognize_recipient_in_content", "write `text_rules = { recipients = true }`"),
    ("search_for_tools_everywhere", "write `text_rules = { calls = true }`"),
];

/// The replacement for a key of Langroid's in a task.
pub(super) fn help(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(name, _)| *name == key).map(|(_, help)| *help)
}

#[cfg(test)]
mod tests {
    use super::KEYS;
    use crate::config::Config;

    #[test]
    fn each_line_that_is_proposed_is_right_in_a_config() {
        let wrapped = |task: &str, run: &str| {
            format!(
                "entry = \"desk\"\n[plugins.chat]\nsource = \"stock:chat\"\n[tasks.desk]\nagent = \"chat\"\n{task}\n[limits.run]\n{run}\n"
            )
        };
        for (key, help) in KEYS {
            let problems = Config::parse("c.toml", "", &wrapped(&format!("{key} = 1"), ""))
                .unwrap_err()
                .to_string();
            assert!(problems.contains(&format!("help: {help}\n")), "{key}: {problems}");
            // A placeholder for the reader to fill in, and a sub-task that the config lacks.
            for (index, line) in help
                .split('`')
                .skip(1)
                .step_by(2)
                .enumerate()
                .filter(|(_, line)| line.contains(" = ") && !line.contains("[\"…"))
            {
                let is_run =
                    help.contains("in [limits.run]") && (index == 1 || !help.contains(" or `"));
                let text = if is_run { wrapped("", line) } else { wrapped(line, "") };
                assert!(Config::parse("c.toml", "", &text).is_ok(), "{key}: {line}");
            }
        }
    }
}
