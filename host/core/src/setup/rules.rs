//! The rules of a task's loop that depend on `compat`: each deliberate difference from the
//! reference under a name. They follow from the task's settings here and nowhere else, and are not
//! recorded. Does not know how the room applies them.

use super::{AgentResponder, TaskSetup};

/// The rules of a task where this host and the reference differ. The pages of the numbers are in
/// `docs/internals/rules`, the reasons in `docs/migrate/differences.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRules {
    /// Whether a pass takes effect without `text_rules.signals`, and an address prefix then has no
    /// effect (L-066, L-067).
    pub(crate) passes_without_signals: bool,
    /// Whether the argument `recipient` of a call addresses it (L-065, L-116).
    pub(crate) arguments_address: bool,
    /// Whether a tool's text is data, so that it neither leaves a question to others nor counts as
    /// a loop (L-056, L-058).
    pub(crate) tool_text_is_data: bool,
    /// Whether a goodbye quits also in a user message that a sub-task or a tool passes on (L-086).
    pub(crate) any_goodbye_quits: bool,
    /// Whether a conversation ends on `q`, `x` and `DONE` too, as a task does (L-086). Otherwise
    /// they are not sent, because a single letter is easily typed by accident.
    pub(crate) short_goodbyes_quit: bool,
    /// Whether a user's text that counts as the host's is still from outside (L-170).
    pub(crate) system_word_is_untrusted: bool,
    /// Whether a text from outside may hold calls that its reader could not have made (L-171).
    pub(crate) trusts_external_calls: bool,
    /// Whether `done_pass` is carried out for a text from outside (L-145, L-172).
    pub(crate) external_done_pass_runs: bool,

    /// Whether responders that the task does not have are tried, and never answer (L-020).
    pub(crate) tries_missing_roles: bool,
    /// Whether the responder `agent` executes its agent's calls for any recipient (L-064).
    pub(crate) calls_ignore_recipient: bool,
    /// Whether a message to the caller's whole task is for its sub-tasks too (L-071).
    pub(crate) task_messages_reach_subtasks: bool,
    /// Whether a sub-task is reset before it is known that the message is for it (L-050b).
    pub(crate) resets_before_recipient_check: bool,
    /// Whether a result keeps a recipient that means nothing to its caller (L-070).
    pub(crate) results_keep_recipient: bool,
    /// Whether an absent user is one who says nothing, and is asked again (L-029, L-084).
    pub(crate) absent_user_is_silent: bool,

    /// Whether a call of a tool that the task does not have is left to other tasks (L-030, L-032,
    /// L-113).
    pub(crate) unknown_calls_go_to_others: bool,
    /// Whether a message with calls that the task does not carry out is one with calls, which the
    /// model hears of first (L-052, L-125).
    pub(crate) unknown_calls_are_calls: bool,
    /// Whether the component does all that the responder `agent` does, `handle_llm_no_tool` too
    /// (L-021).
    pub(crate) component_replaces_host: bool,
    /// Whether a model may call tools that are for handlers (L-141, L-147).
    pub(crate) models_call_handler_tools: bool,
    /// Whether the arguments of a handler's call of a host tool must match its schema (L-114).
    pub(crate) checks_handler_arguments: bool,
    /// Whether the first wrong call in a text keeps the other calls of the text from running
    /// (L-114).
    pub(crate) wrong_call_stops_others: bool,
    /// Whether a call that ends the task is refused beside others (L-119).
    pub(crate) ending_calls_stand_alone: bool,
    /// Whether a tool that answers with a call of itself leaves it to others (L-121).
    pub(crate) repeated_calls_go_to_others: bool,
    /// Whether native calls in a result are only those of the sub-task's own plugins, under its
    /// agent's grants too (L-088).
    pub(crate) results_limit_calls: bool,
    /// Whether each call gets a result in the history, also one that is unknown, says nothing or
    /// has no answer of its own (L-113, L-117, L-122).
    pub(crate) every_call_gets_result: bool,
    /// Whether several native results have no text besides (L-117).
    pub(crate) native_results_lack_text: bool,
    /// Whether one of several results may end or address, if its tool asked for that (L-117).
    pub(crate) joined_results_steer: bool,
    /// Whether an agent is offered a tool that reads on in a result that was cut (L-120).
    pub(crate) offers_cut_results: bool,
    /// Whether a person's words are the result of an open call (L-009).
    pub(crate) user_words_answer_calls: bool,
    /// Whether the content of `done` is text, and never a value (L-140).
    pub(crate) done_content_is_text: bool,

    /// Whether an answer that is set to end the task ends the step where only the user ends the
    /// task (L-081).
    pub(crate) done_response_ends_any_step: bool,
    /// Whether tokens and money are reserved before a model is asked, for the whole run by the
    /// rule of its entry task (L-085).
    pub(crate) reserves_budgets: bool,
    /// Whether a run that ends before any answer has its question as the result (L-088).
    pub(crate) question_is_result: bool,
    /// Whether the run fails if the last step of its root did.
    pub(crate) failed_step_fails_run: bool,
    /// Whether a stuck agent is detected (O-098).
    pub(crate) detects_stuck: bool,

    /// Whether the message that was pending at the end of an activation is pending in the next, if
    /// there is no other (L-051a).
    pub(crate) pending_outlives_activation: bool,
    /// Whether a sub-task's rewind may go back to earlier activations (L-150).
    pub(crate) rewinds_earlier_activations: bool,
    /// Whether a result is marked as another task's words (L-088).
    pub(crate) marks_results: bool,
}

impl TaskRules {
    /// The rules that follow from a task's settings.
    fn of(task: &TaskSetup) -> Self {
        let reference = task.as_langroid;
        let ours = !reference;
        Self {
            passes_without_signals: reference,
            arguments_address: reference,
            tool_text_is_data: ours,
            any_goodbye_quits: reference,
            short_goodbyes_quit: reference,
            system_word_is_untrusted: ours,
            trusts_external_calls: reference,
            external_done_pass_runs: ours,
            tries_missing_roles: reference,
            calls_ignore_recipient: ours,
            task_messages_reach_subtasks: ours,
            resets_before_recipient_check: reference,
            results_keep_recipient: reference,
            absent_user_is_silent: reference,
            unknown_calls_go_to_others: reference,
            unknown_calls_are_calls: ours,
            component_replaces_host: reference && task.agent_responder == AgentResponder::Component,
            models_call_handler_tools: reference,
            checks_handler_arguments: ours,
            wrong_call_stops_others: reference,
            ending_calls_stand_alone: ours,
            repeated_calls_go_to_others: reference,
            results_limit_calls: ours,
            every_call_gets_result: ours,
            native_results_lack_text: reference,
            joined_results_steer: ours,
            offers_cut_results: ours,
            user_words_answer_calls: reference,
            done_content_is_text: reference,
            done_response_ends_any_step: reference,
            reserves_budgets: ours,
            question_is_result: reference,
            failed_step_fails_run: ours,
            // Off by default with `compat`, and what is written takes precedence.
            detects_stuck: task.stuck_detection.on,
            pending_outlives_activation: reference,
            rewinds_earlier_activations: reference,
            marks_results: ours,
        }
    }
}

impl TaskSetup {
    /// The rules that follow from the task's settings.
    pub(crate) fn rules(&self) -> TaskRules {
        TaskRules::of(self)
    }

    /// Whether a conversation with the task ends on `q`, `x` and `DONE` too, beside `quit`, `exit`
    /// and `bye` (L-086).
    #[must_use]
    pub fn short_goodbyes_quit(&self) -> bool {
        self.rules().short_goodbyes_quit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{AgentResponder, TaskSetup};
    use crate::types::stuck_rules::StuckRules;

    const PAGE: &str = include_str!("../../../../docs/migrate/langroid.md");

    /// The rules of a task by name.
    fn rules(
        as_langroid: bool,
        agent_responder: AgentResponder,
        on: bool,
    ) -> BTreeMap<String, bool> {
        let stuck = StuckRules { on, ..StuckRules::default() };
        let task = TaskSetup {
            as_langroid,
            agent_responder,
            stuck_detection: stuck,
            ..TaskSetup::default()
        };
        let text = format!("{:?}", task.rules());
        let fields = text.trim_start_matches("TaskRules { ").trim_end_matches(" }").split(", ");
        fields
            .map(|field| {
                let (name, value) = field.split_once(": ").expect("a field is a name and a value");
                (name.to_owned(), value == "true")
            })
            .collect()
    }

    #[test]
    fn each_rule_differs_with_compat() {
        let ours = rules(false, AgentResponder::Component, true);
        let reference = rules(true, AgentResponder::Component, false);
        let negated: BTreeMap<_, _> =
            reference.iter().map(|(name, value)| (name.clone(), !value)).collect();
        assert_eq!(ours, negated);
        let written = rules(true, AgentResponder::Component, true);
        assert!(written["detects_stuck"], "what is written takes precedence");
    }

    #[test]
    fn some_rules_follow_from_other_settings_too() {
        for responder in [AgentResponder::Host, AgentResponder::HostThenComponent] {
            assert!(!rules(true, responder, true)["component_replaces_host"]);
        }
        assert!(!rules(false, AgentResponder::Component, false)["detects_stuck"]);
    }

    #[test]
    fn the_page_lists_each_rule_with_its_value() {
        let row = |(name, value): (String, bool)| {
            format!("| `{name}` | {} |", if value { "yes" } else { "no" })
        };
        let reference: Vec<_> =
            rules(true, AgentResponder::Component, false).into_iter().map(row).collect();
        let absent: Vec<_> = reference.iter().filter(|row| !PAGE.contains(*row)).collect();
        assert!(absent.is_empty(), "docs/migrate/langroid.md lacks {absent:#?}");
        let listed = PAGE.lines().filter(|line| {
            line.starts_with("| `") && (line.contains("` | yes | ") || line.contains("` | no | "))
        });
        assert_eq!(listed.count(), reference.len(), "the page lists a rule that is none");
    }
}
