//! Programs on Linux. The host's side is in `launch`, `server` and `usage`, the launcher's in `confine`,
//! `loopback`, `mounts` and `system_calls`.

mod confine;
mod launch;
mod loopback;
mod mounts;
mod remove;
mod server;
mod supervise;
mod system_calls;
mod usage;

pub use confine::run_confined;
pub(super) use launch::run;
pub(super) use server::start_server;
pub use server::{ServerProcess, stop_servers};
pub use supervise::run_supervised;
