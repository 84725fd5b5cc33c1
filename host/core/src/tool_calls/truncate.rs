//! A history that is too long for its model: how much of each entry is kept, and how much room
//! stays for the answer (L-180); and texts that are cut, each with a mark that says so (L-120).
//! Counts only: what an entry holds, and who counts exactly, is not known here.

use std::collections::BTreeMap;

use crate::types::task_options::Overflow;

/// What stands, on a line of its own, where the rest of a text was left out.
pub const MARK: &str = "[The rest was left out: too long.]";

/// Bytes of text that are taken for a token where nobody counts.
pub const BYTES_PER_TOKEN: u32 = 4;

/// Tokens that are held back, for the count may be off.
pub const RESERVE: u64 = 300;

/// Tokens that are kept free for an answer where the operator gave no number.
pub const MAX_OUTPUT: u64 = 4_096;

/// Tokens that are kept free for it in any case where the operator gave no number.
pub const MIN_OUTPUT: u64 = 50;

/// Tokens that a cut entry keeps at least, without the mark.
const FLOOR: u64 = 30;

/// Taken off more than needed: a text that is cut and marked may count one or two more than its
/// parts.
const SLACK: u64 = 2;

/// Whose word an entry is for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// An entry of a history, only as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    pub role: Role,
    /// Tokens of its text, which can be cut.
    pub text: u64,
    /// Tokens of all else in it, such as attachments.
    pub rest: u64,
}

impl HistoryEntry {
    pub(crate) fn tokens(self) -> u64 {
        self.text.saturating_add(self.rest)
    }
}

/// What a model takes and gives, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Prompt and answer together.
    pub context: u64,
    /// Of the answer, when there is room.
    pub max_output: u64,
    /// Of the answer, at least.
    pub min_output: u64,
    /// Held back once the room is short.
    pub reserve: u64,
    /// That the mark of a cut text takes.
    pub mark: u64,
}

impl Limits {
    /// Limits with the usual reserve, counted in bytes.
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
    /// Its text as [`cut`] leaves it.
    Cut {
        index: usize,
        tokens: u64,
    },
}

/// How a history fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncationPlan {
    /// Tokens that the answer may have.
    pub output: u64,
    /// In the order of the history.
    pub keep: Vec<RetainedEntry>,
}

/// However it is shortened, the history leaves too little room for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history has {tokens} tokens when shortened; {most} would fit")]
pub struct DoesNotFit {
    /// What is left when all was cut that may be.
    pub tokens: u64,
    pub most: u64,
}

/// Fits a history into its model. The first entry and everything from the last USER entry on stay
/// as they are (L-180).
///
/// The answer gets less room first; only when that is not enough is the history shortened. The
/// reference does the same, to the token.
///
/// # Errors
/// When what may be shortened is not enough.
pub fn fit(
    entries: &[HistoryEntry],
    limits: &Limits,
    strategy: Overflow,
) -> Result<TruncationPlan, DoesNotFit> {
    let total = entries.iter().fold(0_u64, |total, entry| total.saturating_add(entry.tokens()));
    let whole = || (0..entries.len()).map(RetainedEntry::Whole).collect();
    if total.saturating_add(limits.max_output) <= limits.context {
        return Ok(TruncationPlan { output: limits.max_output, keep: whole() });
    }
    let most = limits
        .context
        .checked_sub(limits.min_output.saturating_add(limits.reserve))
        .ok_or(DoesNotFit { tokens: total, most: 0 })?;
    let (tokens, keep) = match strategy {
        _ if total <= most => (total, whole()),
        Overflow::Truncate => truncated(entries, total, most, limits.mark),
        Overflow::DropTurns => without_turns(entries, total, most),
    };
    if tokens > most {
        return Err(DoesNotFit { tokens, most });
    }
    let room = limits.context.saturating_sub(tokens).saturating_sub(limits.reserve);
    Ok(TruncationPlan { output: room.min(limits.max_output), keep })
}

/// Takes an even share of what is too much from each entry that can give, oldest first; what the
/// later ones cannot give comes from the earlier.
fn truncated(
    entries: &[HistoryEntry],
    mut total: u64,
    most: u64,
    mark: u64,
) -> (u64, Vec<RetainedEntry>) {
    let spare = |entry: &HistoryEntry| entry.text.saturating_sub(FLOOR.saturating_add(mark));
    let last = entries.iter().rposition(|entry| entry.role == Role::User).unwrap_or(0);
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
    let kept = |index| {
        cuts.get(&index).map_or(RetainedEntry::Whole(index), |tokens| RetainedEntry::Cut {
            index,
            tokens: *tokens,
        })
    };
    (total, (0..entries.len()).map(kept).collect())
}

/// Leaves out whole turns, oldest first: a USER entry and all up to the next.
fn without_turns(entries: &[HistoryEntry], mut total: u64, most: u64) -> (u64, Vec<RetainedEntry>) {
    let users: Vec<usize> = entries
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, entry)| entry.role == Role::User)
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

/// Tokens of a text, rounded up, where so many bytes are one.
#[must_use]
pub fn tokens_of(text: &str, bytes_per_token: u32) -> u64 {
    (text.len() as u64).div_ceil(u64::from(bytes_per_token.max(1)))
}

/// The text, or so many tokens of it and the mark.
#[must_use]
pub fn cut(text: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || MARK.to_owned())
}

/// A tool's result, or so many tokens of it and a word on that (L-120: `_max_result_tokens`).
#[must_use]
pub fn shortened(text: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || shortened_notice(tokens))
}

/// What stays of a result once it was answered (L-120: `_max_retained_tokens`).
#[must_use]
pub fn retained(text: &str, tool: &str, tokens: u64, bytes_per_token: u32) -> String {
    ended(text, tokens, bytes_per_token, || retained_notice(tool, tokens))
}

/// What [`shortened`] puts, after a line feed, where it cuts.
#[must_use]
pub fn shortened_notice(tokens: u64) -> String {
    format!("[The result was cut to {tokens} tokens; ask for less at a time.]")
}

/// What [`retained`] puts, after a line feed, where it cuts.
#[must_use]
pub fn retained_notice(tool: &str, tokens: u64) -> String {
    format!("[Of this result {tokens} tokens were kept; for all of it call {tool} again.]")
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
