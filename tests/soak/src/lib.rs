//! Kill tests. A parent holds the outside world, which outlives everything: servers that count what
//! reaches them, a folder for files. A child runs a busy host and is killed with SIGKILL, at named
//! points and at any time, and started again until all its work has ended. After each kill the
//! parent looks at what is kept; at the end, at what became of everything. On Linux the child's
//! disk can be one of the parent's own making, which loses what was not synced: then most kills are
//! power cuts.
//!
//! Not the runtime's own tests of the store's file: those cut and flip its bytes.

mod check;
pub mod child;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod fuse;
mod kept;
mod lives;
#[cfg(target_os = "linux")]
mod power;
#[cfg(not(target_os = "linux"))]
mod powerless;
mod promised;
mod random;
mod skip;
mod talk;
mod totals;
mod world;

pub use child::{Child, Clockwork};
pub use kept::{Keep, Kept};
pub use lives::{Place, Plan, soak};
#[cfg(target_os = "linux")]
pub use power::can_cut_power;
#[cfg(not(target_os = "linux"))]
pub use powerless::can_cut_power;
pub use skip::is_skipped;
pub use totals::Totals;
