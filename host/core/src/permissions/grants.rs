//! What the operator may grant to a plugin, a file per capability: the data of the grant, the
//! decision about a request, and the texts for people. The room, the imports and the explanations
//! ask the same functions; no other code decides.

mod channels;
mod delegate;
mod exec;
mod fetch;
mod files;
mod history;
mod kv;
mod model;
mod rights;
mod route;
mod secrets;
mod texts;
mod tools;

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::permissions::fetch::UrlPattern;
use crate::permissions::manifest::Manifest;
use crate::permissions::task_scope::TaskScope;
use crate::types::capability::Capability;
use crate::types::denial::Layer;
use crate::types::ids::ModelName;

pub use channels::ChannelsGrant;
pub use delegate::{DelegateGrant, DelegationChoice};
pub use exec::{Confinement, ExecGrant};
pub use fetch::{FetchGrant, FetchRule};
pub(crate) use files::folder;
pub use files::{CHOSEN_FOLDER, FOLDER_BYTES, FOLDER_FILES, FileGrant, FileMode};
pub use history::HistoryGrant;
pub use kv::{KEY_BYTES, KvGrant};
pub use model::ModelGrant;
pub use rights::{Refused, Rights};
pub use route::RouteGrant;
pub use secrets::{SecretGrant, SecretPlace};
pub(crate) use texts::{in_brackets, join};
pub use tools::{ToolPattern, ToolsGrant};

/// The grant of one capability. The functions without `self` are about the capability, granted or
/// not.
pub trait Grant {
    /// Decides about a request with a target, by the function that the room and the imports ask.
    ///
    /// # Errors
    /// The record of the refusal.
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused>
    where
        Self: Sized;

    /// Whether a task's scope leaves any of it; `None` if no scope can restrict the capability.
    fn remains(_scope: &TaskScope, _writes: bool) -> Option<bool>
    where
        Self: Sized,
    {
        None
    }

    /// The question whose yes is a grant, and the value of that grant; `None` if the operator has
    /// to choose names.
    fn question() -> Option<(&'static str, &'static str)>
    where
        Self: Sized,
    {
        None
    }

    /// The reason for suggesting no line of config after a refusal by the config or by the grant's
    /// limits; `None` for the usual one.
    fn why_no_line(_target: Option<&str>, _layer: Layer) -> Option<String>
    where
        Self: Sized,
    {
        None
    }

    /// Returns what both grant: this, with which the run began, and today's; `None` if that is
    /// nothing.
    fn narrowed_by(&self, today: &Self) -> Option<Self>
    where
        Self: Sized;

    /// Whether tools of a plugin with this grant need an approver, unless a rule says otherwise.
    /// Allocates nothing.
    fn needs_approval(&self) -> bool;

    /// Whether a call can have effects by it, so that a repeated call needs the records of them.
    fn acts(&self) -> bool {
        true
    }

    /// The places outside of the host that data can reach by it. Without a default, so that a new
    /// grant does not compile before it is counted.
    fn destinations(&self) -> Vec<Destination<'_>>;

    /// The texts for people, about one request or, with an empty target, about all of the grant.
    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts;
}

/// A request of a plugin, as a question about it.
#[derive(Clone, Copy)]
pub struct AccessRequest<'a> {
    pub rights: Rights<'a>,
    pub target: &'a str,
    /// Whether a file is written.
    pub writes: bool,
    /// The method of a `fetch`.
    pub method: &'a str,
    /// The headers of a `fetch`, in lower case.
    pub headers: &'a [String],
    /// The host that a secret is sent to.
    pub host: Option<&'a str>,
    /// Whether the config has a task of this name.
    pub is_task: &'a dyn Fn(&str) -> bool,
    pub is_channel: &'a dyn Fn(&str) -> bool,
}

/// A place outside of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Destination<'a> {
    Url(&'a UrlPattern),
    /// The server of a model.
    Model(&'a ModelName),
    /// Wherever programs of the machine connect to.
    Programs,
}

/// The texts of a grant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GrantTexts {
    /// The permissions at the head of a run: `read docs/`. Those of `tools` depend on the toolboxes
    /// of the tasks, which `inspect` knows.
    pub summary: Vec<String>,
    /// The effect that needs an approver: `spend on the model default`.
    pub effect: String,
    /// The grant in an explanation.
    pub granted: String,
    /// The index of the list entry that covers the target.
    pub entry: Option<usize>,
    /// The limits that only a run can check.
    pub bounds: Option<String>,
}

impl GrantTexts {
    /// The explanation of a list of names.
    fn of_names<T: Borrow<str>>(names: &[T], covers: impl Fn(&str) -> bool) -> Self {
        let entry = names.iter().position(|name| covers(name.borrow()));
        Self { granted: texts::joined(names), entry, ..Self::default() }
    }
}

/// The functions of a capability that need no grant of it.
#[derive(Clone, Copy)]
pub struct GrantKind {
    pub decide: fn(&AccessRequest<'_>) -> Result<(), Refused>,
    pub remains: fn(&TaskScope, bool) -> Option<bool>,
    pub question: fn() -> Option<(&'static str, &'static str)>,
    pub why_no_line: fn(Option<&str>, Layer) -> Option<String>,
}

impl<'a> AccessRequest<'a> {
    /// Returns a request for the capability as a whole.
    #[must_use]
    pub fn new(rights: Rights<'a>) -> Self {
        Self {
            rights,
            target: "",
            writes: false,
            method: "GET",
            headers: &[],
            host: None,
            is_task: &|_| false,
            is_channel: &|_| false,
        }
    }
}

impl GrantKind {
    fn new<F: GrantField>() -> Self {
        Self {
            decide: F::Grant::decide,
            remains: F::Grant::remains,
            question: F::Grant::question,
            why_no_line: F::Grant::why_no_line,
        }
    }
}

/// A field of [`Grants`]: a grant, or nothing.
trait GrantField: Clone + Default + PartialEq {
    type Grant: Grant;

    fn grant(&self) -> Option<&Self::Grant>;
    fn of(grant: Option<Self::Grant>) -> Self;
}

impl<T: Grant + Clone + PartialEq> GrantField for Option<T> {
    type Grant = T;

    fn grant(&self) -> Option<&T> {
        self.as_ref()
    }

    fn of(grant: Option<T>) -> Self {
        grant
    }
}

impl<T: Clone + PartialEq> GrantField for Vec<T>
where
    Self: Grant,
{
    type Grant = Self;

    fn grant(&self) -> Option<&Self> {
        (!self.is_empty()).then_some(self)
    }

    fn of(grant: Option<Self>) -> Self {
        grant.unwrap_or_default()
    }
}

/// Whether a scope with this list of names leaves any.
fn has_any<T>(names: &Option<Vec<T>>) -> bool {
    names.as_ref().is_none_or(|names| !names.is_empty())
}

fn is_nothing<F: GrantField>(field: &F) -> bool {
    field.grant().is_none()
}

fn both<F: GrantField>(initial: &F, today: &F) -> F {
    F::of(
        initial.grant().zip(today.grant()).and_then(|(initial, today)| initial.narrowed_by(today)),
    )
}

/// Every capability, once. A capability without an entry does not compile.
macro_rules! capabilities {
    (
        granted { $($capability:ident $field:ident: $stored:ty, $verb:literal;)* }
        own { $($own:ident $own_verb:literal;)* }
    ) => {
        /// All grants of one plugin.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Grants {
            $(
                #[serde(default, skip_serializing_if = "is_nothing")]
                pub $field: $stored,
            )*
        }

        impl Grants {
            /// The grant of a capability; `None` if there is none.
            #[must_use]
            pub fn get(&self, capability: Capability) -> Option<&dyn Grant> {
                match capability {
                    $(Capability::$capability => self.$field.grant().map(|grant| grant as _),)*
                    $(Capability::$own)|* => None,
                }
            }

            /// Whether this holds for any grant and its capability. Every call of a tool asks it,
            /// so it is written out.
            pub fn any(&self, holds: impl Fn(Capability, &dyn Grant) -> bool) -> bool {
                $(self.$field.grant().is_some_and(|grant| holds(Capability::$capability, grant)))||*
            }

            /// Each grant, with its capability.
            pub fn all(&self) -> impl Iterator<Item = (Capability, &dyn Grant)> {
                let all = [$((
                    Capability::$capability,
                    self.$field.grant().map(|grant| grant as &dyn Grant),
                ),)*];
                all.into_iter().filter_map(|(capability, grant)| Some((capability, grant?)))
            }

            /// Returns what both grant: these, with which the run began, and those of today's
            /// config.
            #[must_use]
            pub fn narrowed_by(&self, today: &Self) -> Self {
                Self { $($field: both(&self.$field, &today.$field),)* }
            }

            /// The grants that the manifest requests: the others have no effect.
            #[must_use]
            pub(crate) fn requested_by(&self, manifest: &Manifest) -> Self {
                let mut requested = self.clone();
                $(
                    if manifest.ask(Capability::$capability).is_none() {
                        requested.$field = Default::default();
                    }
                )*
                requested
            }
        }

        /// The verb of a capability in front of a request's target: `use the model`. `writes` is
        /// about files, and ignored for others.
        #[must_use]
        pub fn verb(capability: Capability, writes: bool) -> &'static str {
            match capability {
                Capability::Files if writes => "write",
                $(Capability::$capability => $verb,)*
                $(Capability::$own => $own_verb,)*
            }
        }

        /// The functions of a capability; `None` if it needs no grant.
        #[must_use]
        pub fn kind_of(capability: Capability) -> Option<GrantKind> {
            match capability {
                $(Capability::$capability => Some(GrantKind::new::<$stored>()),)*
                $(Capability::$own)|* => None,
            }
        }
    };
}

capabilities! {
    granted {
        Model model: Option<ModelGrant>, "use the model";
        Tools tools: Option<ToolsGrant>, "call";
        Delegate delegate: Option<DelegateGrant>, "delegate to";
        Route route: Option<RouteGrant>, "address";
        Files files: Vec<FileGrant>, "read";
        Channels channels: Option<ChannelsGrant>, "speak on";
        Fetch fetch: Option<FetchGrant>, "send a request to";
        Kv kv: Option<KvGrant>, "store keys under";
        Secrets secrets: Vec<SecretGrant>, "use the secret";
        History history: Option<HistoryGrant>, "read the conversation of the tasks that call it";
        Exec exec: Option<ExecGrant>, "run outside the sandbox";
    }
    own {
        Config "read its settings";
        Scratch "use its scratch";
        Blobs "use attachments";
        Log "write log lines";
        Progress "report progress";
    }
}

impl Grants {
    /// Whether any of this capability was granted.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        capability.is_own() || self.get(capability).is_some()
    }

    /// Whether a call can do anything by these grants besides answering.
    #[must_use]
    pub fn can_act(&self) -> bool {
        self.any(|_, grant| grant.acts())
    }
}

#[cfg(test)]
mod tests;
