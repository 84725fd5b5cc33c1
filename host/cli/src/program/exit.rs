//! Exit codes. They are part of the program's interface, documented in `conclave --help` and
//! in docs/reference/cli.md, and are never renumbered.

use std::collections::BTreeSet;

use conclave_core::types::completion::ModelDiagnosticKind;
use conclave_core::types::outcome::{EndCause, Status};

/// Success.
pub(crate) const OK: u8 = 0;
/// The task ended without a result: stalled, in a loop, rejected, not addressed, or with an
/// internal failure.
pub(crate) const FAILED: u8 = 1;
/// The command line or the config is wrong.
pub(crate) const USAGE: u8 = 2;
/// A key or a secret is missing, or a model's server rejects its key.
pub(crate) const KEY: u8 = 3;
/// A model's server could not be reached, is busy, or has no such model; or the database of a store
/// could not be reached.
pub(crate) const UNREACHABLE: u8 = 4;
/// A plugin could not be loaded, or an agent failed again and again.
pub(crate) const PLUGIN: u8 = 5;
/// A tool call needed an approval, and no user could be asked.
pub(crate) const POLICY: u8 = 6;
/// A hard limit ended the run: turns, tokens, cost, calls or computing time.
pub(crate) const BUDGET: u8 = 7;
/// An agent asked its user a question, and no user was there to answer.
pub(crate) const UNANSWERED: u8 = 9;
/// A model's server refused the request, or its answer could not be used.
pub(crate) const REFUSED: u8 = 10;
/// Another host has taken the run over and continues it.
pub(crate) const ELSEWHERE: u8 = 11;
/// The run took longer than `limits.run.wall`.
pub(crate) const TIMEOUT: u8 = 124;
/// The terminal was closed, and the run is interrupted: the code that a shell gives SIGHUP.
pub(crate) const HUNG_UP: u8 = 129;
/// Stopped: Ctrl-C, or `conclave stop`.
pub(crate) const INTERRUPTED: u8 = 130;

/// Exit codes from the worst to the best. The batch exits with the first that one of its runs has.
const WORST_FIRST: [u8; 12] = [
    INTERRUPTED,
    KEY,
    UNREACHABLE,
    REFUSED,
    PLUGIN,
    POLICY,
    UNANSWERED,
    BUDGET,
    TIMEOUT,
    FAILED,
    ELSEWHERE,
    OK,
];

/// The table for `--help` and the docs.
pub(crate) const TABLE: &str = "\
Exit codes:
    0  success
    1  the task ended without an answer (stalled, in a loop, rejected, not
       addressed), or an internal error
    2  the command line or the config is wrong
    3  a key or a secret is missing, or a model server rejected its key
    4  a model server could not be reached, is busy, or has no such model; or
       the database of a store could not be reached
    5  a plugin could not be loaded, or an agent failed repeatedly
    6  a tool call needed an approval, and no terminal was there to ask for it;
       `--approvals wait` leaves it to `conclave approve`
    7  a limit of the run ended it (turns, tokens, cost, calls, CPU), and it was
       not raised
    9  an agent asked its user a question, and no user was there to answer;
       `--questions wait` leaves it to `conclave answer`
   10  a model server refused a request, or its answer could not be used
   11  another host took the run over, and goes on with it
  124  the run took longer than limits.run.wall
  129  the terminal was closed; `conclave resume` resumes the run
  130  stopped by Ctrl-C or `conclave stop`";

/// Incidents of a run that its status alone does not show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunIncidents {
    /// The failure of the latest model call; `None` if the model answered.
    pub(crate) trouble: Option<ModelDiagnosticKind>,
    /// Whether a call was refused because no user could be asked.
    pub(crate) nobody_to_ask: bool,
    /// The cause of the outcome.
    pub(crate) cause: Option<EndCause>,
}

/// The exit code for the end of a run.
pub(crate) fn of(status: Status, met: RunIncidents) -> u8 {
    match status {
        status if status.is_budget() => BUDGET,
        Status::Timeout => TIMEOUT,
        Status::Kill => INTERRUPTED,
        // The host itself failed, which outweighs all incidents.
        Status::InternalError => FAILED,
        // Applies even if the agent found another way: the operator required an approval that was
        // not given.
        _ if met.nobody_to_ask => POLICY,
        _ if met.cause == Some(EndCause::NobodyToAsk) => UNANSWERED,
        status if status.is_success() => OK,
        status => match met.trouble {
            Some(trouble) => of_trouble(trouble),
            None if status == Status::Error => PLUGIN,
            None => FAILED,
        },
    }
}

/// The worst of these exit codes.
pub(crate) fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    let codes: BTreeSet<u8> = codes.into_iter().collect();
    WORST_FIRST.into_iter().find(|code| codes.contains(code)).unwrap_or(OK)
}

/// The exit code for a model failure that left a task without an answer.
pub(crate) fn of_trouble(kind: ModelDiagnosticKind) -> u8 {
    match kind {
        ModelDiagnosticKind::Key => KEY,
        ModelDiagnosticKind::Unreachable
        | ModelDiagnosticKind::Unavailable
        | ModelDiagnosticKind::NotFound => UNREACHABLE,
        ModelDiagnosticKind::Refused
        | ModelDiagnosticKind::Limit
        | ModelDiagnosticKind::Malformed => REFUSED,
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::completion::ModelDiagnosticKind;
    use conclave_core::types::outcome::{EndCause, Status};

    use super::{RunIncidents, of, worst};

    #[test]
    fn incidents_select_the_exit_code_of_a_failure() {
        let key =
            RunIncidents { trouble: Some(ModelDiagnosticKind::Key), ..RunIncidents::default() };
        let down = RunIncidents {
            trouble: Some(ModelDiagnosticKind::Unreachable),
            ..RunIncidents::default()
        };
        let no_user = RunIncidents { nobody_to_ask: true, ..RunIncidents::default() };
        assert_eq!(
            [key, down, no_user, RunIncidents::default()].map(|met| of(Status::Error, met)),
            [3, 4, 6, 5]
        );
        for (kind, code) in [
            (ModelDiagnosticKind::Unavailable, 4),
            (ModelDiagnosticKind::NotFound, 4),
            (ModelDiagnosticKind::Refused, 10),
            (ModelDiagnosticKind::Malformed, 10),
        ] {
            let met = RunIncidents { trouble: Some(kind), ..RunIncidents::default() };
            assert_eq!((of(Status::Error, met), of(Status::Done, met)), (code, 0));
        }
        let unanswered =
            RunIncidents { cause: Some(EndCause::NobodyToAsk), ..RunIncidents::default() };
        assert_eq!(
            [Status::Stalled, Status::Kill, Status::InternalError]
                .map(|status| of(status, unanswered)),
            [9, 130, 1]
        );
        assert_eq!(
            [key, down, no_user, RunIncidents::default()].map(|met| of(Status::InternalError, met)),
            [1; 4]
        );
        assert_eq!(
            [key, down, no_user, RunIncidents::default()].map(|met| of(Status::Done, met)),
            [0, 0, 6, 0]
        );
        assert_eq!(
            [key, down, no_user, RunIncidents::default()].map(|met| of(Status::Timeout, met)),
            [124; 4]
        );
    }

    #[test]
    fn the_worst_end_is_that_of_the_batch() {
        assert_eq!(worst([0, 1, 5, 7]), 5);
        assert_eq!(worst([0, 124, 1]), 124);
        assert_eq!(worst([6, 1]), 6);
        assert_eq!(worst([3, 130]), 130);
        assert_eq!(worst([]), 0);
    }
}
