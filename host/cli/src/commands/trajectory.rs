//! `conclave trajectory`: logs of agents in the forms of OpenHands. What is in one is the library's
//! business; here it is found and shown.

mod export;
mod log;
mod replay;
mod show;

use crate::args::{OutputArgs, Trajectory};
use crate::program::error::CliError;
use crate::ui::interrupt::Interrupts;

pub(crate) async fn trajectory(
    command: Trajectory,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    match command {
        Trajectory::Show(args) => show::show(&args, output),
        Trajectory::Export(args) => export::export(&args, output),
        Trajectory::Replay(args) => replay::replay(args, output, interrupts).await,
    }
}
