//! Agent trajectories as logs hold them: actions, observations, and their JSON in the wire forms of
//! both eras (2024-07 and 2025-11). Also the operations on lists of them. Host and plugins share
//! this crate, so it uses no files, clock or randomness.
//!
//! - A [`TrajectoryEvent`] is an [`Action`] or an [`Observation`] with its source, time and cause.
//!   [`TrajectoryEvent::from_json`] reads logs of both eras and our own kinds.
//!   [`TrajectoryEvent::from_json_of`] reads by the rules of one era.
//!   [`TrajectoryEvent::to_json_text`] writes an era's form, with keys in order. Serde stores the
//!   union of both eras without loss.
//! - [`load()`] reads a whole log of any shape. [`SdkEvent`] is an event of the later SDK;
//!   [`translate()`] converts it to 2025-11.
//! - For lists of events: [`search()`], [`Replay`], [`AnsweredAction`], [`unmatched_events`],
//!   [`tree_of`].
//! - For texts: [`read_lines`] and [`write_lines`] like `read` and `write`, [`edit`] like the
//!   editor, and [`truncate`].
//! - For prompts: [`fence`], which marks data.
//!
//! ```
//! use conclave_trajectory::{Action, Era, TrajectoryEvent, Observation};
//! use serde_json::json;
//!
//! let event = TrajectoryEvent::from_json(&json!({"action": "run", "args": {"command": "ls", "background": true}}))?;
//! let Some(Action::Run(run)) = event.action() else { unreachable!("it is a run") };
//! assert!(run.background);
//! assert_eq!(
//!     event.to_json_text(Era::V2024),
//!     r#"{"message":"Running command: ls","action":"run","args":{"command":"ls","background":true,"thought":""}}"#
//! );
//!
//! // What is wrong is said so that a model can mend it.
//! let wrong = TrajectoryEvent::from_json(&json!({"action": "run", "args": {"cmd": "ls"}})).expect_err("it has a wrong argument");
//! assert!(wrong.text.contains("unknown: cmd; missing: command"));
//!
//! let answer: TrajectoryEvent = Observation::from(conclave_trajectory::observation::Run::new("ls", "a\nb\n", 0)).into();
//! assert_eq!(answer.message(Era::V2025), "Command `ls` executed with exit code 0.");
//! # Ok::<(), conclave_trajectory::Malformed>(())
//! ```

#![warn(missing_docs)]

pub mod action;
mod comparison;
pub mod edit;
mod era;
mod event;
pub mod fence;
mod field;
mod json;
mod lines;
mod load;
mod malformed;
mod metrics;
pub mod observation;
mod python;
mod replay;
mod sdk;
mod search;
mod spelling;
mod text;
mod timestamp;
mod translate;
mod tree;
mod unmatched;
mod vocabulary;

pub use action::Action;
pub use comparison::{AnsweredAction, ReplayVerdict};
pub use era::Era;
pub use event::{Body, Source, TrajectoryEvent};
pub use field::LooseId;
pub use lines::{read_lines, write_lines};
pub use load::{Loaded, LogProblem, load};
pub use malformed::{Malformed, MalformedKind};
pub use observation::Observation;
pub use replay::Replay;
pub use sdk::{SdkError, SdkEvent, SdkSource, file_name, parse_file_name, tree_of};
pub use search::{Filter, search};
pub use text::{cut_bytes, cut_chars, truncate};
pub use translate::translate;
pub use tree::{EventTree, ROOT, TreeError};
pub use unmatched::unmatched_events;
pub use vocabulary::{
    CommandMetadata, Confirmation, DelegateOne, EditSource, ReadSource, RecallType,
    RecalledKnowledge, SecurityRisk,
};
