//! Limits the length of lists from a guest, which the host iterates over. The engine limits their
//! bytes as they cross.

use super::meter::{Broken, Meter};
use crate::imports::bindings::exports::conclave::plugin::{
    channel, condenser, delivery_strategy as strategy, gate, judge, security_analyzer as analyzer,
    tools,
};
use crate::imports::bindings::plugin::{actions, model, toolbox, types};

/// A value that may contain lists.
pub(crate) trait Lists {
    /// The length of the longest list.
    fn longest(&self) -> usize {
        0
    }
}

impl Meter {
    /// Checks all lists of a value, nested ones included.
    ///
    /// # Errors
    /// If one exceeds the limit.
    pub(crate) fn check_lists(&self, value: &impl Lists) -> Result<(), Broken> {
        self.check_list(value.longest())
    }
}

fn longest<'a, T: Lists + 'a>(values: impl IntoIterator<Item = &'a T>) -> usize {
    values.into_iter().map(Lists::longest).max().unwrap_or_default()
}

fn most<const N: usize>(lengths: [usize; N]) -> usize {
    lengths.into_iter().max().unwrap_or_default()
}

impl<T: Lists> Lists for Vec<T> {
    fn longest(&self) -> usize {
        self.len().max(longest(self))
    }
}

impl<T: Lists> Lists for Option<T> {
    fn longest(&self) -> usize {
        longest(self)
    }
}

/// A guest's error contains no list.
impl<T: Lists, E> Lists for Result<T, E> {
    fn longest(&self) -> usize {
        longest(self)
    }
}

impl Lists for () {}
impl Lists for String {}

impl Lists for actions::Turn {
    fn longest(&self) -> usize {
        let inner = match &self.action {
            actions::Action::Reply(reply) => {
                most([reply.tool_calls.len(), reply.attachments.len()])
            }
            actions::Action::DelegateTask(background) => background.share_channels.len(),
            _ => 0,
        };
        most([inner, self.extra.len()])
    }
}

impl Lists for tools::Outcome {
    fn longest(&self) -> usize {
        most([self.attachments.len(), self.follow_up_calls.len()])
    }
}

impl Lists for tools::ToolSpec {
    fn longest(&self) -> usize {
        self.extra.len()
    }
}

impl Lists for strategy::Decision {
    fn longest(&self) -> usize {
        match self {
            Self::Deliver(message) => message.tasks.len(),
            Self::MoveToInbox(tasks) => tasks.len(),
            Self::Wait(_) | Self::GiveUp(_) => 0,
        }
    }
}

/// The records in its lists contain no further lists.
impl Lists for condenser::Condensation {
    fn longest(&self) -> usize {
        most([self.forget.len(), self.mask.len()])
    }
}

impl Lists for channel::Reception {
    fn longest(&self) -> usize {
        match self {
            Self::Messages(messages) => messages.len(),
            Self::Answer(_) | Self::Refused(_) => 0,
        }
    }
}

impl Lists for analyzer::Verdict {}
impl Lists for channel::Delivery {}
impl Lists for gate::Verdict {}
impl Lists for judge::Ruling {}
impl Lists for judge::TaskResult {}

impl Lists for model::Request {
    fn longest(&self) -> usize {
        most([self.prompt.longest(), self.tools.longest(), self.options.len()])
    }
}

impl Lists for toolbox::Request {}

impl Lists for model::Part {
    fn longest(&self) -> usize {
        match self {
            Self::Draft(draft) => draft.longest(),
            Self::System | Self::History(_) => 0,
        }
    }
}

impl Lists for types::Draft {
    fn longest(&self) -> usize {
        most([self.tool_calls.len(), self.tool_results.len(), self.attachments.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> types::ToolCall {
        types::ToolCall { id: String::new(), name: String::new(), arguments: String::new() }
    }

    #[test]
    fn inner_lists_count_too() {
        let draft = types::Draft {
            role: types::Role::User,
            content: String::new(),
            tool_calls: vec![call(), call(), call()],
            tool_results: Vec::new(),
            attachments: Vec::new(),
        };
        assert_eq!(vec![model::Part::System, model::Part::Draft(draft)].longest(), 3);
        assert_eq!(vec![model::Part::System, model::Part::System].longest(), 2);
    }

    #[test]
    fn decisions_and_the_tasks_in_them_are_counted() {
        let moved = strategy::Decision::MoveToInbox(vec![String::new(); 4]);
        assert_eq!(vec![moved].longest(), 4);
        assert_eq!(Ok::<_, ()>(vec![strategy::Decision::GiveUp(String::new())]).longest(), 1);
    }

    #[test]
    fn spans_and_masked_entries_of_a_condensation_are_counted() {
        let of = |spans: usize, masked: usize| condenser::Condensation {
            forget: vec![condenser::Span { start: 0, end: 1 }; spans],
            mask: vec![condenser::Masked { index: 0, text: String::new() }; masked],
            summary: None,
        };
        assert_eq!(Ok::<_, ()>(Some(of(3, 2))).longest(), 3);
        assert_eq!(Ok::<_, ()>(Some(of(1, 5))).longest(), 5);
    }

    #[test]
    fn what_a_tool_asks_for_next_is_counted() {
        let outcome = tools::Outcome {
            content: None,
            value: None,
            attachments: Vec::new(),
            follow_up_calls: vec![call(), call()],
        };
        assert_eq!(Some(outcome).longest(), 2);
    }
}
