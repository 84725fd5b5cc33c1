//! `conclave trajectory`: agent logs in the formats of OpenHands. This module finds and shows them;
//! the library parses them.

mod compare;
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
