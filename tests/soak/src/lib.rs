//! Kill tests. A parent holds the outside world, which outlives everything: servers that count what reaches them, a folder for files. A
//! child runs a busy host and is killed with SIGKILL, at named points and at any time, and started again until all its work has ended.
//! After each kill the parent looks at what is kept; at the end, at what became of everything.
//!
//! Not the runtime's own tests of the store's file: those cut and flip its bytes.

mod check;
pub mod child;
mod kept;
mod lives;
mod random;
mod talk;
mod totals;
mod world;

pub use child::{Child, Clockwork};
pub use kept::{Keep, Kept};
pub use lives::{Place, Plan, soak};
pub use totals::Totals;
