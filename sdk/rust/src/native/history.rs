//! The conversation around a tool call, from a snapshot.

use super::{denied, fake};
use crate::Message;
use crate::history::HistoryError;
use crate::testing::TaskSnapshot;

fn read<T>(work: impl FnOnce(&TaskSnapshot) -> T) -> Result<T, HistoryError> {
    fake(|fake| fake.history.as_deref().map(work))
        .ok_or_else(|| HistoryError::Denied(denied("history", "")))
}

pub(crate) fn calling_message() -> Result<Message, HistoryError> {
    let absent = || HistoryError::Other("the snapshot has no pending message".to_owned());
    read(|task| task.pending.clone())?.ok_or_else(absent)
}

pub(crate) fn inputs() -> Result<String, HistoryError> {
    read(|task| task.inputs.to_string())
}

pub(crate) fn length() -> Result<u32, HistoryError> {
    read(|task| u32::try_from(task.history.len()).unwrap_or(u32::MAX))
}

pub(crate) fn messages(start: u32, count: u32) -> Result<Vec<Message>, HistoryError> {
    read(|task| task.history.iter().skip(start as usize).take(count as usize).cloned().collect())
}
