//! A table that fits the terminal. Columns are as wide as needed, and the last one is cut. On a
//! narrow terminal the least important columns are left out.

use std::io::IsTerminal;

use anstyle::Style;

use super::columns::{StyledText, cell, line, width};
use super::{FAINT, paint};
use crate::ui::screen;

/// Columns without a terminal on stdout and without `COLUMNS`.
const WIDTH: usize = 120;
/// Columns of a line, at least. A smaller value of `COLUMNS` is not meant seriously.
const NARROW: usize = 20;
/// Columns of a table's last column, if it needs them: of a message, fewer say nothing.
const LAST: usize = 24;
/// Blanks between two columns.
const GAP: usize = 2;

/// The columns of a line on stdout.
pub(crate) fn total() -> usize {
    limit().unwrap_or(WIDTH)
}

/// The columns of a line on stdout; `None` if neither a terminal nor `COLUMNS` limits them.
pub(crate) fn limit() -> Option<usize> {
    if std::io::stdout().is_terminal() {
        return Some(screen::columns());
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns >= NARROW)
}

/// A column, with its priority on narrow terminals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Columns that it takes, at most. The last column takes the rest.
    pub(crate) most: usize,
    /// The order in which columns are left out on a narrow terminal, the highest value first. Never
    /// with 0.
    pub(crate) goes: u8,
}

/// The cells of a row, with their styles.
pub(crate) type Cells = Vec<(Style, String)>;

/// The rows of a table for stdout, with its head. None if it has no items.
pub(crate) fn rows(
    columns: &[Column],
    cells: impl Iterator<Item = Cells>,
) -> impl Iterator<Item = String> {
    std::iter::once_with(move || {
        let cells: Vec<Cells> = cells.collect();
        if cells.is_empty() { Vec::new() } else { lines(columns, &cells, total()) }
    })
    .flatten()
}

/// The lines of a table, with its head.
fn lines(columns: &[Column], rows: &[Cells], total: usize) -> Vec<String> {
    let last = columns.len().saturating_sub(1);
    let needs = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|(_, text)| width(text));
        cells.chain([width(columns[index].head)]).max().unwrap_or(0).min(columns[index].most)
    };
    let mut columns_kept: Vec<(usize, usize)> =
        (0..columns.len()).map(|index| (index, needs(index))).collect();
    // A column that is empty in all rows is left out.
    columns_kept.retain(|(index, _)| {
        *index == 0
            || rows.iter().any(|row| row.get(*index).is_some_and(|(_, text)| !text.is_empty()))
    });
    let least = |index: usize, wide: usize| if index == last { wide.min(LAST) } else { wide };
    while columns_kept.iter().map(|(index, wide)| least(*index, *wide) + GAP).sum::<usize>()
        > total + GAP
    {
        let Some(place) = columns_kept
            .iter()
            .enumerate()
            .filter(|(_, (index, _))| columns[*index].goes > 0)
            .max_by_key(|(_, (index, _))| columns[*index].goes)
        else {
            break;
        };
        columns_kept.remove(place.0);
    }
    let head =
        columns_kept.iter().map(|(index, wide)| (*index, *wide, FAINT, columns[*index].head));
    let mut lines = vec![row_of(head, total)];
    for row in rows {
        let cells = columns_kept.iter().filter_map(|(index, wide)| {
            row.get(*index).map(|(style, text)| (*index, *wide, *style, text.as_str()))
        });
        lines.push(row_of(cells, total));
    }
    lines
}

fn row_of<'a>(cells: impl Iterator<Item = (usize, usize, Style, &'a str)>, total: usize) -> String {
    let cells: Vec<_> = cells.collect();
    let (mut row, mut used) = (String::new(), 0);
    for (place, (_, wide, style, text)) in cells.iter().enumerate() {
        let columns = total.saturating_sub(used);
        if place + 1 == cells.len() {
            row.push_str(&line(&[StyledText::new(*style, *text)], columns).0);
            break;
        }
        let wide = (*wide).min(columns);
        row.push_str(&cell(&[StyledText::new(*style, *text)], wide));
        row.push_str(&" ".repeat(GAP.min(columns - wide)));
        used += wide + GAP;
    }
    row.trim_end().to_owned()
}

/// A faint line below a table.
pub(crate) fn note(text: impl std::fmt::Display) -> String {
    paint(FAINT, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { head: "RUN", most: 12, goes: 0 },
        Column { head: "COST", most: 8, goes: 2 },
        Column { head: "TOOK", most: 8, goes: 1 },
        Column { head: "MESSAGE", most: 400, goes: 0 },
    ];

    fn table(total: usize) -> Vec<String> {
        let cells = |cells: [&str; 4]| cells.map(|text| (Style::new(), text.to_owned())).to_vec();
        let rows = [
            cells(["3f2a91c0", "$0.02", "4.2 s", "When was Skerryvore lit? Note it down."]),
            cells(["aa", "", "1 ms", "\u{1b}[2J漢字"]),
        ];
        lines(&COLUMNS, &rows, total)
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    #[test]
    fn what_matters_least_is_left_out_where_it_is_narrow() {
        assert_eq!(
            table(60),
            [
                "RUN       COST   TOOK   MESSAGE",
                "3f2a91c0  $0.02  4.2 s  When was Skerryvore lit? Note it do…",
                "aa               1 ms   \\u{1b}[2J漢字"
            ]
        );
        assert_eq!(
            table(42),
            [
                "RUN       TOOK   MESSAGE",
                "3f2a91c0  4.2 s  When was Skerryvore lit?…",
                "aa        1 ms   \\u{1b}[2J漢字"
            ]
        );
        assert_eq!(table(28)[1], "3f2a91c0  When was Skerryvo…");
        for total in 20..120 {
            assert!(
                table(total).iter().all(|line| width(line) <= total),
                "{total}: {:?}",
                table(total)
            );
        }
    }

    #[test]
    fn a_column_without_content_is_not_there() {
        let rows = [vec![
            (Style::new(), "aa".to_owned()),
            (Style::new(), String::new()),
            (Style::new(), "1 ms".to_owned()),
            (Style::new(), "x".to_owned()),
        ]];
        let head = lines(&COLUMNS, &rows, 80)[0].clone();
        assert_eq!(anstream::adapter::strip_str(&head).to_string(), "RUN  TOOK  MESSAGE");
    }
}
