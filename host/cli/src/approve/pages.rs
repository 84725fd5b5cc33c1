//! A question on pages. The call can be let run once all pages were shown, laid out for the size
//! that the terminal has when the person answers.

use super::keys;
use super::shown::ApprovalView;
use crate::ui::screen::size;
use crate::ui::show::columns::wrap_styled;

/// What a person reads who lets a call run before its last page was shown.
pub(crate) const NOT_ALL_SHOWN: &str = "      not all of it was shown yet: [s] shows the next page";
/// What a person reads whose terminal has another size than the question was laid out for. Many
/// terminals have broken its rows anew by then, with no mark in front of what they broke off.
const RESIZED: &str = "      the terminal's size has changed";
/// Rows of one of the notices above.
const NOTICE_ROWS: usize = 1;

/// A question as far as it was shown.
pub(crate) struct Pages {
    view: ApprovalView,
    /// Columns and rows of the terminal that it was laid out for.
    size: (usize, usize),
    /// Rows that a page may have.
    rows: usize,
    page: usize,
}

impl Pages {
    /// Lays out a question for the terminal. `view` and `below` take its columns; `below` returns
    /// the rows of what stands below a page.
    pub(crate) fn new(
        view: impl FnOnce(usize) -> ApprovalView,
        below: impl FnOnce(usize) -> usize,
    ) -> Self {
        let (columns, rows) = size();
        let page_rows = rows.saturating_sub(below(columns) + NOTICE_ROWS);
        Self { view: view(columns), size: (columns, rows), rows: page_rows, page: 0 }
    }

    /// Returns the page that is shown.
    pub(crate) fn text(&self) -> String {
        self.view.page(self.page, self.rows)
    }

    /// Returns the first page on an empty screen: rows of an earlier layout are scrolled away.
    pub(crate) fn text_after_resize(&self) -> String {
        format!("{}{RESIZED}\n{}", "\n".repeat(self.size.1), self.text())
    }

    /// Returns the next page; behind the last one the first.
    pub(crate) fn next(&mut self) -> String {
        self.page += 1;
        self.view.page(self.page % self.view.pages(self.rows), self.rows)
    }

    /// Returns whether the last page was shown.
    pub(crate) fn is_read(&self) -> bool {
        self.page + 1 >= self.view.pages(self.rows)
    }

    pub(crate) fn has_more(&self) -> bool {
        self.view.pages(self.rows) > 1
    }

    /// Returns whether the terminal has another size than the question was laid out for.
    pub(crate) fn is_outdated(&self) -> bool {
        size() != self.size
    }
}

/// Returns how many rows the choices and the input line take below a page.
pub(super) fn letter_rows(columns: usize) -> usize {
    let letters = [&keys::letters(true, true, true), keys::PROMPT];
    letters.iter().flat_map(|line| wrap_styled(line, columns)).count() + 1
}
