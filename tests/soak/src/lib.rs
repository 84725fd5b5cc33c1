//! Kill tests. A parent holds the outside world, which outlives everything: servers that count
//! requests, and a folder for files. A child runs a busy host. It is killed with SIGKILL at named
//! points and at random times, and restarted until all its work has ended. The parent checks the
//! stored state after each kill, and the results of all work at the end. On Linux the parent can
//! simulate the child's disk, which loses unsynced data: then most kills are power cuts. [`soak_server`]
//! does this to the program `conclave serve`, beneath many readers.
//!
//! The corruption of the store's file is tested in the runtime, not here.

mod check;
pub mod child;
#[cfg(unix)]
mod cluster;
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
#[cfg(unix)]
mod server;
mod talk;
mod totals;
mod world;

pub use child::{Child, Clockwork};
#[cfg(unix)]
pub use cluster::{ClusterFailure, ClusterPlan, ClusterReport, ClusterWorker, soak_cluster};
pub use conclave_test_servers::is_skipped;
pub use kept::{Keep, Kept};
pub use lives::{Place, Plan, soak};
#[cfg(target_os = "linux")]
pub use power::can_cut_power;
#[cfg(not(target_os = "linux"))]
pub use powerless::can_cut_power;
#[cfg(unix)]
pub use server::{ServerPlan, ServerReport, soak_server};
pub use totals::Totals;
