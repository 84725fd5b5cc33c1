//! Programs on Linux. The host's side is in `launch` and `usage`, the launcher's in `confine`,
//! `mounts` and `system_calls`.

mod confine;
mod launch;
mod mounts;
mod remove;
mod supervise;
mod system_calls;
mod usage;

pub use confine::run_confined;
pub(super) use launch::run;
pub use supervise::run_supervised;
