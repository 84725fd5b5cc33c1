//! A simulated user: it answers in the place of the user, such as in an evaluation. The operator's
//! config names it in a task. Its text has the authority of the user in that task; only people
//! approve actions and grant budgets.

use crate::{Result, View};

/// The trait of a simulated user; `export!(simulated_user: X)` exports it.
///
/// ```
/// use conclave_sdk::simulated_user::SimulatedUser;
/// use conclave_sdk::testing::TaskSnapshot;
/// use conclave_sdk::{Result, View};
///
/// /// Knows one date, and leaves.
/// struct Guest;
///
/// impl SimulatedUser for Guest {
///     fn answer(question: &str, _view: &View) -> Result<Option<String>> {
///         let text = if question.contains("date") { "The first of June." } else { "quit" };
///         Ok(Some(text.to_owned()))
///     }
/// }
/// # conclave_sdk::export!(simulated_user: Guest, asks: []);
///
/// let task = TaskSnapshot::default();
/// let said = Guest::answer("For which date?", &task.view());
/// assert_eq!(said.unwrap().as_deref(), Some("The first of June."));
/// ```
pub trait SimulatedUser {
    /// Returns the answer to a question, or to the message that a person would see; the text can be
    /// empty. `None` or an empty text is no answer. The words of a user hold: `quit` ends the task.
    /// An error ends it with the status `ERROR`.
    fn answer(question: &str, view: &View) -> Result<Option<String>>;
}
