//! A question split into pages. The call can be approved once all pages were shown, laid out for
//! the terminal's size at the time of the answer.

use super::keys;
use super::view::ApprovalView;
use crate::ui::screen::size;
use crate::ui::show::columns::wrap_styled;

/// The notice to a user who approves a call before its last page was shown.
pub(crate) const NOT_ALL_SHOWN: &str = "      read all pages first: [s] shows the next one";
/// The notice to a user whose terminal has been resized since the layout. Many terminals have
/// rewrapped the rows by then, without marks on the new ones.
const RESIZED: &str = "      the terminal's size has changed";
/// Rows of one of the notices above.
const NOTICE_ROWS: usize = 1;

/// A question, and how much of it was shown.
pub(crate) struct Pages {
    view: ApprovalView,
    /// Columns and rows of the terminal that the layout is for.
    size: (usize, usize),
    /// Rows per page.
    rows: usize,
    page: usize,
}

impl Pages {
    /// Lays out a question for the terminal. `view` and `below` take its columns; `below` returns
    /// the number of rows below a page.
    pub(crate) fn new(
        view: impl FnOnce(usize) -> ApprovalView,
        below: impl FnOnce(usize) -> usize,
    ) -> Self {
        let (columns, rows) = size();
        let page_rows = rows.saturating_sub(below(columns) + NOTICE_ROWS);
        Self { view: view(columns), size: (columns, rows), rows: page_rows, page: 0 }
    }

    /// The current page.
    pub(crate) fn text(&self) -> String {
        self.view.page(self.page, self.rows)
    }

    /// The first page on a cleared screen: rows of an earlier layout are scrolled away.
    pub(crate) fn text_after_resize(&self) -> String {
        format!("{}{RESIZED}\n{}", "\n".repeat(self.size.1), self.text())
    }

    /// Returns the next page, and the first one after the last.
    pub(crate) fn next(&mut self) -> String {
        self.page += 1;
        self.view.page(self.page % self.view.pages(self.rows), self.rows)
    }

    /// Whether the last page was shown.
    pub(crate) fn is_read(&self) -> bool {
        self.page + 1 >= self.view.pages(self.rows)
    }

    pub(crate) fn has_more(&self) -> bool {
        self.view.pages(self.rows) > 1
    }

    /// Whether the terminal has another size than the question was laid out for.
    pub(crate) fn is_outdated(&self) -> bool {
        size() != self.size
    }
}

/// Returns how many rows the choices and the input line take below a page.
pub(super) fn letter_rows(columns: usize) -> usize {
    let letters = [&keys::letters(true, true, true), keys::PROMPT];
    letters.iter().flat_map(|line| wrap_styled(line, columns)).count() + 1
}
