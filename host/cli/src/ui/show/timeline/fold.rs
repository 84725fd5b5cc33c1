//! Selects the rows of a long run that are shown: the first and the last of many similar ones, and
//! all exceptional ones.

use std::collections::BTreeMap;
use std::ops::Range;

use conclave_core::inspect::timeline::{RowSubject, SandboxUsage, TimelineRow};

use crate::ui::show::amounts::{thousands, took};

/// Rows of one level that are shown from each end of many.
const FIRST: usize = 5;
const LAST: usize = 3;
/// Exceptional rows of one level that are shown.
const OUT: usize = 60;
/// Calls of the same tool that are combined into one line, at least, as in the trace of a run.
const TOGETHER: usize = 4;

/// A line of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShownItem {
    Row(usize),
    /// Rows that are left out, with everything below them.
    More(Range<usize>),
    /// Consecutive calls of the same tool without anything noteworthy below them.
    Together(Range<usize>),
}

/// All rows if there are few, and a selection otherwise.
pub(crate) fn fold(rows: &[TimelineRow], few: usize) -> Vec<ShownItem> {
    if rows.len() <= few {
        let all = (0..rows.len()).map(ShownItem::Row).collect();
        return if few == usize::MAX { all } else { together(rows, all) };
    }
    let tree = TimelineTree::of(rows);
    let mut items = Vec::new();
    // Not by recursion: the depth depends on the run, and could overflow the stack.
    let mut to_do = vec![OpenWork::Level(0..rows.len())];
    while let Some(work) = to_do.pop() {
        match work {
            OpenWork::Item(item) => items.push(item),
            OpenWork::Level(range) => {
                let mut found = tree.level(range);
                found.reverse();
                to_do.append(&mut found);
            }
        }
    }
    together(rows, items)
}

/// The tool that a row calls, if the row has nothing else to show.
fn plain_call(rows: &[TimelineRow], index: usize) -> Option<&str> {
    let row = &rows[index];
    let is_leaf = rows.get(index + 1).is_none_or(|next| next.depth <= row.depth);
    match &row.what {
        RowSubject::Tool { name, .. }
            if is_leaf && row.end_ms.is_some() && !row.abandoned && !row.what.stands_out() =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// Combines bursts of the same call.
fn together(rows: &[TimelineRow], items: Vec<ShownItem>) -> Vec<ShownItem> {
    let mut items_shown: Vec<ShownItem> = Vec::with_capacity(items.len());
    let mut burst: Range<usize> = 0..0;
    let end = |burst: &mut Range<usize>, items_shown: &mut Vec<ShownItem>| {
        let burst = std::mem::take(burst);
        if burst.len() < TOGETHER {
            items_shown.extend(burst.map(ShownItem::Row))
        } else {
            items_shown.push(ShownItem::Together(burst))
        }
    };
    for item in items {
        let ShownItem::Row(index) = item else {
            end(&mut burst, &mut items_shown);
            items_shown.push(item);
            continue;
        };
        let call = plain_call(rows, index);
        let goes_on = !burst.is_empty()
            && burst.end == index
            && rows[burst.start].depth == rows[index].depth
            && call.is_some()
            && call == plain_call(rows, burst.start);
        if goes_on {
            burst.end = index + 1;
            continue;
        }
        end(&mut burst, &mut items_shown);
        if call.is_some() {
            burst = index..index + 1;
        } else {
            items_shown.push(item);
        }
    }
    end(&mut burst, &mut items_shown);
    items_shown
}

/// A burst as one row with the total sandbox time, and its text.
pub(crate) fn as_one(rows: &[TimelineRow]) -> Option<(TimelineRow, String)> {
    let mut one = rows.first()?.clone();
    one.end_ms = rows.iter().filter_map(|row| row.end_ms).max();
    if let RowSubject::Tool { arguments, answer, sandbox, .. } = &mut one.what {
        arguments.clear();
        answer.clear();
        let mut used = SandboxUsage::default();
        for of in rows.iter().filter_map(|row| row.what.sandbox()) {
            used.wall_us = used.wall_us.saturating_add(of.wall_us);
            used.cpu_ms = used.cpu_ms.saturating_add(of.cpu_ms);
            used.memory = used.memory.max(of.memory);
        }
        *sandbox = (used != SandboxUsage::default()).then_some(used);
    }
    Some((one, format!("{} times", thousands(rows.len() as u64))))
}

/// A summary of left-out rows: `9 980 rows: 4 990 step, 4 990 tool, in 12.0 s`.
pub(crate) fn summary(rows: &[TimelineRow]) -> String {
    let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
    rows.iter().for_each(|row| *kinds.entry(row.what.kind()).or_default() += 1);
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{} {kind}", thousands(*count))).collect();
    let from = rows.iter().map(|row| row.start_ms).min().unwrap_or(0);
    let to = rows.iter().filter_map(|row| row.end_ms).max().unwrap_or(from);
    format!(
        "{} more rows ({}) in {}",
        thousands(rows.len() as u64),
        kinds.join(", "),
        took(to.saturating_sub(from))
    )
}

enum OpenWork {
    Item(ShownItem),
    Level(Range<usize>),
}

/// A single row takes no more space than a line about its omission.
fn left_out(range: Range<usize>) -> OpenWork {
    OpenWork::Item(if range.len() == 1 {
        ShownItem::Row(range.start)
    } else {
        ShownItem::More(range)
    })
}

struct TimelineTree {
    /// For each row, the index behind the last row below it.
    ends: Vec<usize>,
    /// For each row, whether it or a row below it is exceptional.
    out: Vec<bool>,
}

impl TimelineTree {
    fn of(rows: &[TimelineRow]) -> Self {
        let mut ends = vec![rows.len(); rows.len()];
        let mut out: Vec<bool> = rows.iter().map(|row| row.what.stands_out()).collect();
        let mut above: Vec<usize> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            while let Some(last) = above.pop_if(|last| rows[*last].depth >= row.depth) {
                ends[last] = index;
            }
            if out[index] {
                above.iter().for_each(|upper| out[*upper] = true);
            }
            above.push(index);
        }
        Self { ends, out }
    }

    /// The rows of one level, with left-out ones combined.
    fn level(&self, range: Range<usize>) -> Vec<OpenWork> {
        let mut children = Vec::new();
        let mut at = range.start;
        while at < range.end {
            children.push(at);
            at = self.ends[at];
        }
        let (many, mut outside_count) = (children.len() > FIRST + LAST + 1, OUT);
        let mut work = Vec::new();
        let mut hidden: Option<Range<usize>> = None;
        for (place, index) in children.iter().copied().enumerate() {
            let is_edge = !many || place < FIRST || place + LAST >= children.len();
            let is_shown = is_edge || (self.out[index] && outside_count > 0);
            if !is_shown {
                let from = hidden.map_or(index, |range| range.start);
                hidden = Some(from..self.ends[index]);
                continue;
            }
            outside_count -= usize::from(!is_edge);
            work.extend(hidden.take().map(left_out));
            work.push(OpenWork::Item(ShownItem::Row(index)));
            if index + 1 < self.ends[index] {
                work.push(OpenWork::Level(index + 1..self.ends[index]));
            }
        }
        work.extend(hidden.map(left_out));
        work
    }
}
