//! What people may do at a server, by role. One table and one function, [`may`], that every door of
//! a server asks. Who a person is, and which role that person has, is decided elsewhere: by the
//! token of a request, never by its content.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::ids::Principal;
use crate::types::wording::one_of;

/// The role of a person at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Reads all runs, and changes nothing.
    Viewer,
    /// Starts runs, and reads and steers those only.
    User,
    /// Starts, reads and steers all runs.
    Operator,
    /// Reads all runs, and decides what waits for an approval.
    Approver,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::Viewer, Self::User, Self::Operator, Self::Approver, Self::Admin];

    /// The words of the roles, in the order of [`Role::ALL`].
    pub const WORDS: [&str; 5] = ["viewer", "user", "operator", "approver", "admin"];

    /// The word in a config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// The role of a word; `None` for another word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// What a person asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Lists runs. Each run of the list is an action of its own: `Read`.
    List,
    /// Reads a run: its state, its events, its timeline.
    Read,
    /// Reads the chain of all records.
    Audit,
    /// Reads the figures of the server.
    Measure,
    /// Reads the rights of the plugins.
    Inspect,
    /// Starts a run.
    Start,
    /// Sends a message to a run, or answers its question.
    Say,
    /// Stops a run or its turn.
    Stop,
    /// Pauses a run.
    Pause,
    /// Resumes a paused run.
    Resume,
    /// Decides a call that waits for an approval.
    Decide,
    /// Applies or drops the changes of a run to a folder.
    Apply,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 12] = [
        Self::List,
        Self::Read,
        Self::Audit,
        Self::Measure,
        Self::Inspect,
        Self::Start,
        Self::Say,
        Self::Stop,
        Self::Pause,
        Self::Resume,
        Self::Decide,
        Self::Apply,
    ];

    /// The verb in a sentence.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list runs",
            Self::Read => "read the run",
            Self::Audit => "read the audit chain",
            Self::Measure => "read the figures of the server",
            Self::Inspect => "read the rights of plugins",
            Self::Start => "start a run",
            Self::Say => "send the run a message",
            Self::Stop => "stop the run",
            Self::Pause => "pause the run",
            Self::Resume => "resume the run",
            Self::Decide => "decide about a call",
            Self::Apply => "apply or drop the changes of the run",
        }
    }
}

/// The runs for which a role may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoleReach {
    None,
    /// Those that the person started.
    Own,
    All,
}

impl Role {
    /// The roles that may do something, for all runs or for those that the person started.
    #[must_use]
    pub fn that_may(action: Action) -> Vec<Self> {
        Self::ALL.into_iter().filter(|role| role.reach(action) != RoleReach::None).collect()
    }

    fn reach(self, action: Action) -> RoleReach {
        use Action::{
            Apply, Audit, Decide, Inspect, List, Measure, Pause, Read, Resume, Say, Start, Stop,
        };
        match (self, action) {
            (Self::Admin, _)
            | (Self::Viewer | Self::Operator | Self::Approver, List | Read | Measure | Inspect)
            | (Self::Operator | Self::Approver, Audit)
            | (Self::Operator, Start | Say | Stop | Pause | Resume | Apply)
            | (Self::Approver, Decide) => RoleReach::All,
            (Self::User, List | Read | Start | Say | Stop) => RoleReach::Own,
            (Self::User, Audit | Measure | Inspect | Pause | Resume | Decide | Apply)
            | (Self::Viewer, Audit | Start | Say | Stop | Pause | Resume | Decide | Apply)
            | (Self::Operator, Decide)
            | (Self::Approver, Start | Say | Stop | Pause | Resume | Apply) => RoleReach::None,
        }
    }
}

/// The reason why a person may not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleRefusal {
    /// The run belongs to another person. The answer is the same as for a run that does not exist,
    /// so that ids cannot be probed.
    #[error("there is no such run")]
    ForeignRun,
    /// Other roles may do it.
    #[error("the role `{role}` may not {}; {} may", action.as_str(), one_of(roles.iter().map(|role| role.as_str())))]
    MissingRole {
        /// The action.
        action: Action,
        /// The role of the person.
        role: Role,
        /// The roles that may do it for this run.
        roles: Vec<Role>,
    },
}

impl RoleRefusal {
    /// The stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ForeignRun => "run_not_found",
            Self::MissingRole { .. } => "missing_role",
        }
    }
}

/// Decides whether a person may do something. `owner` is who started the run; `None` for an action
/// that is about no run that exists, such as a start.
///
/// # Errors
/// `ForeignRun` if the person may not even read the run, `MissingRole` otherwise.
pub fn may(
    principal: &Principal,
    role: Role,
    action: Action,
    owner: Option<&Principal>,
) -> Result<(), RoleRefusal> {
    let is_own = owner.is_none_or(|owner| owner == principal);
    let reaches = |role: Role, action| match role.reach(action) {
        RoleReach::All => true,
        RoleReach::Own => is_own,
        RoleReach::None => false,
    };
    if reaches(role, action) {
        return Ok(());
    }
    if !reaches(role, Action::Read) {
        return Err(RoleRefusal::ForeignRun);
    }
    let roles = Role::ALL.into_iter().filter(|role| reaches(*role, action)).collect();
    Err(RoleRefusal::MissingRole { action, role, roles })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each role may do: `A` for all runs, `o` for its own ones, `-` for none.
    const TABLE: [(Action, &str); 12] = [
        // viewer, user, operator, approver, admin
        (Action::List, "AoAAA"),
        (Action::Read, "AoAAA"),
        (Action::Audit, "--AAA"),
        (Action::Measure, "A-AAA"),
        (Action::Inspect, "A-AAA"),
        (Action::Start, "-oA-A"),
        (Action::Say, "-oA-A"),
        (Action::Stop, "-oA-A"),
        (Action::Pause, "--A-A"),
        (Action::Resume, "--A-A"),
        (Action::Decide, "---AA"),
        (Action::Apply, "--A-A"),
    ];

    #[test]
    fn each_role_may_do_what_the_table_says() {
        assert_eq!(TABLE.map(|(action, _)| action), Action::ALL);
        let (ada, bob) = (Principal("ada".into()), Principal("bob".into()));
        for (action, row) in TABLE {
            for (role, cell) in Role::ALL.into_iter().zip(row.chars()) {
                let own = may(&ada, role, action, Some(&ada)).is_ok();
                let foreign = may(&ada, role, action, Some(&bob)).is_ok();
                let none = may(&ada, role, action, None).is_ok();
                let expected = match cell {
                    'A' => (true, true, true),
                    'o' => (true, false, true),
                    _ => (false, false, false),
                };
                assert_eq!((own, foreign, none), expected, "{role} {action:?}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_roles_that_may_and_hides_what_the_person_may_not_read() {
        let (ada, bob) = (Principal("ada".into()), Principal("bob".into()));
        let refusal = may(&ada, Role::Viewer, Action::Stop, Some(&bob)).unwrap_err();
        assert_eq!(
            refusal,
            RoleRefusal::MissingRole {
                action: Action::Stop,
                role: Role::Viewer,
                roles: vec![Role::Operator, Role::Admin],
            }
        );
        assert_eq!(refusal.code(), "missing_role");
        let text = refusal.to_string();
        assert!(text.contains("operator") && text.contains("admin"), "{text}");
        // A user who may not pause at all learns nothing of the runs of others.
        for action in [Action::Read, Action::Stop, Action::Pause, Action::Decide] {
            let foreign = may(&ada, Role::User, action, Some(&bob));
            assert_eq!(foreign, Err(RoleRefusal::ForeignRun), "{action:?}");
        }
        let own = may(&ada, Role::User, Action::Pause, Some(&ada));
        assert!(matches!(own, Err(RoleRefusal::MissingRole { .. })), "{own:?}");
    }

    #[test]
    fn the_word_of_a_role_is_that_of_its_json() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
            assert_eq!(Role::of_word(role.as_str()), Some(role));
        }
        assert_eq!(Role::of_word("root"), None);
    }

    #[test]
    fn the_roles_that_may_do_something_include_those_that_may_for_their_own_runs_only() {
        assert_eq!(Role::that_may(Action::Decide), [Role::Approver, Role::Admin]);
        assert_eq!(Role::that_may(Action::Say), [Role::User, Role::Operator, Role::Admin]);
    }
}
