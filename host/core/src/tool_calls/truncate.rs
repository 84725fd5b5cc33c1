//! Truncation of a history that is too long for its model: the part kept of each entry, and the
//! room for the answer (L-180). Also marks for cut texts (L-120). Counts tokens only; the content
//! of entries and exact counts are elsewhere.

use std::collections::BTreeMap;

use crate::types::task_options::Overflow;

/// The mark, on a line of its own, in place of the rest of a text.
pub const MARK: &str = "[The rest was left out: too long.]";

/// The default number of bytes counted as one token.
pub const BYTES_PER_TOKEN: u32 = 4;

/// Tokens held back, because the count is an estimate.
pub const RESERVE: u64 = 300;

/// The default number of tokens reserved for an answer.
pub const MAX_OUTPUT: u64 = 4_096;

/// The default minimum of tokens reserved for an answer.
pub const MIN_OUTPUT: u64 = 50;

/// The minimum of tokens that a cut entry keeps, without the mark.
const FLOOR: u64 = 30;

/// Extra tokens to remove: a cut text with its mark may count one or two more than its parts.
const SLACK: u64 = 2;

/// The role of an entry's author, as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRole {
    System,
    User,
    Assistant,
    Tool,
}

/// The size of a history entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    pub role: PromptRole,
    /// Tokens of its text, which can be cut.
    pub text: u64,
    /// Tokens of everything else in it, such as attachments.
    pub rest: u64,
}

impl HistoryEntry {
    pub(crate) fn tokens(self) -> u64 {
        self.text.saturating_add(self.rest)
    }
}

/// The limits of a model, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Prompt and answer together.
    pub context: u64,
    /// The answer, if there is room.
    pub max_output: u64,
    /// The minimum of the answer.
    pub min_output: u64,
    /// The reserve when the room is short.
    pub reserve: u64,
    /// The mark of a cut text.
    pub mark: u64,
}

impl Limits {
    /// Returns limits with the default reserve, counted in bytes.
    #[must_use]
    pub fn new(context: u64, max_output: u64, min_output: u64, bytes_per_token: u32) -> Self {
        let mark =
            tokens_of(MARK, bytes_per_token).saturating_add(tokens_of("\n", bytes_per_token));
        Self { context, max_output, min_output, reserve: RESERVE, mark }
    }
}

/// An entry that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainedEntry {
    Whole(usize),
    /// Its text is cut by [`cut`].
    Cut {
        index: usize,
        tokens: u64,
    },
}

/// The plan that fits a history into its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncationPlan {
    /// The limit of the answer in tokens.
    pub output: u64,
    /// The entries that stay, in the order of the history.
    pub keep: Vec<RetainedEntry>,
}

/// The error for a history that leaves too little room for an answer, however it is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history has {tokens} tokens when shortened; {most} would fit")]
pub struct DoesNotFit {
    /// Tokens left after all possible cuts.
    pub tokens: u64,
    pub most: u64,
}

/// Fits a history into its model. The first entry and everything from the last USER entry on stay
/// unchanged (L-180).
///
/// The room for the answer shrinks first; only if that is not enough, the history is shortened. The
/// reference does the same, to the token.
///
/// # Errors
/// `DoesNotFit` if the entries that may be shortened do not suffice.
pub fn fit(
    entries: &[HistoryEntry],
    limits: &Limits,
    strategy: Overflow,
) -> Result<TruncationPlan, DoesNotFit> {
    let total = entries.iter().fold(0_u64, |total, entry| total.saturating_add(entry.tokens()));
    let keep_all = || (0..entries.len()).map(RetainedEntry::Whole).collect();
    if total.saturating_add(limits.max_output) <= limits.context {
        return Ok(TruncationPlan { output: limits.max_output, keep: keep_all() });
    }
    let most = limits
        .context
        .checked_sub(limits.min_output.saturating_add(limits.reserve))
        .ok_or(DoesNotFit { tokens: total, most: 0 })?;
    let (tokens, keep) = match strategy {
        _ if total <= most => (total, keep_all()),
        Overflow::Truncate => truncated(entries, total, most, limits.mark),
        Overflow::DropTurns => without_turns(entries, total, most),
    };
    if tokens > most {
        return Err(DoesNotFit { tokens, most });
    }
    let room = limits.context.saturating_sub(tokens).saturating_sub(limits.reserve);
    Ok(TruncationPlan { output: room.min(limits.max_output), keep })
}

/// Takes an even share of the excess from each entry that can be cut, oldest first. A share beyond
/// the later entries comes from the earlier ones.
fn truncated(
    entries: &[HistoryEntry],
    mut total: u64,
    most: u64,
    mark: u64,
) -> (u64, Vec<RetainedEntry>) {
    let spare = |entry: &HistoryEntry| entry.text.saturating_sub(FLOOR.saturating_add(mark));
    let last = entries.iter().rposition(|entry| entry.role == PromptRole::User).unwrap_or(0);
    let givers =
        || entries.iter().enumerate().take(last).skip(1).filter(|(_, entry)| spare(entry) > 0);
    let (mut later, mut later_spare) = givers()
        .fold((0_u64, 0_u64), |(n, sum), (_, entry)| (n + 1, sum.saturating_add(spare(entry))));
    let mut cuts = BTreeMap::new();
    for (index, entry) in givers() {
        if total <= most {
            break;
        }
        later -= 1;
        later_spare = later_spare.saturating_sub(spare(entry));
        let excess = total - most;
        let share = excess.div_ceil(later + 1).max(excess.saturating_sub(later_spare));
        let tokens =
            entry.text.saturating_sub(share.saturating_add(mark).saturating_add(SLACK)).max(FLOOR);
        total -= entry.text.saturating_sub(tokens.saturating_add(mark));
        cuts.insert(index, tokens);
    }
    let retained_entry = |index| {
        cuts.get(&index).map_or(RetainedEntry::Whole(index), |tokens| RetainedEntry::Cut {
            index,
            tokens: *tokens,
        })
    };
    (total, (0..entries.len()).map(retained_entry).collect())
}

/// Drops whole turns, oldest first: a USER entry and all up to the next.
fn without_turns(entries: &[HistoryEntry], mut total: u64, most: u64) -> (u64, Vec<RetainedEntry>) {
    let users: Vec<usize> = entries
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, entry)| entry.role == PromptRole::User)
        .map(|(index, _)| index)
        .collect();
    let first = users.first().copied().unwrap_or(entries.len());
    let mut resume = first;
    for (start, end) in users.iter().copied().zip(users.iter().skip(1).copied()) {
        if total <= most {
            break;
        }
        let turn = entries.get(start..end).unwrap_or_default();
        total -=
            turn.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.tokens())).min(total);
        resume = end;
    }
    (total, (0..first).chain(resume..entries.len()).map(RetainedEntry::Whole).collect())
}

/// The tokens of a text, rounded up, at this number of bytes per token.
#[must_use]
pub fn tokens_of(text: &str, bytes_per_token: u32) -> u64 {
    tokens_of_len(text.len() as u64, bytes_per_token)
}

/// The tokens of a text with so many bytes.
#[must_use]
pub(crate) fn tokens_of_len(bytes: u64, bytes_per_token: u32) -> u64 {
    bytes.div_ceil(u64::from(bytes_per_token.max(1)))
}

/// The text, or its first tokens and the mark.
#[must_use]
pub fn cut(text: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || MARK.to_owned())
}

/// A tool's result, or its first tokens and a notice (L-120: `_max_result_tokens`).
#[must_use]
pub fn shortened(text: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || shortened_notice(tokens))
}

/// The part of a result that stays once it was answered (L-120: `_max_retained_tokens`).
#[must_use]
pub fn retained(text: &str, tool: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || retained_notice(tool, tokens))
}

/// The notice that [`shortened`] appends after a line feed.
#[must_use]
pub fn shortened_notice(tokens: u64) -> String {
    format!("[The result was cut to {tokens} tokens; ask for less at a time.]")
}

/// The notice that [`retained`] appends after a line feed.
#[must_use]
pub fn retained_notice(tool: &str, tokens: u64) -> String {
    format!("[Of this result {tokens} tokens remain; for all of it call {tool} again.]")
}

fn ended(text: &str, tokens: u64, bytes_per_token: u32, notice: impl FnOnce() -> String) -> String {
    let most = usize::try_from(tokens.saturating_mul(u64::from(bytes_per_token.max(1))))
        .unwrap_or(usize::MAX);
    if text.len() <= most {
        return text.to_owned();
    }
    let beginning = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
    format!("{beginning}\n{}", notice())
}

#[cfg(test)]
mod tests;
