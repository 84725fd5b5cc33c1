//! `conclave stop RUN`: ends a run that goes on in another process, or one that was cut off and is not to be gone on with.

use std::time::{Duration, Instant};

use conclave_runtime::store::{Mail, RunRow, Standing, Store, StoreError, Word};

use crate::args::{self, Output};
use crate::error::CliError;
use crate::exit;
use crate::show::printable;
use crate::stdout;
use crate::stores::{InStore, Stores, unusable};

/// How often it is looked whether it has ended.
const EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn stop(args: &args::Stop, output: Output) -> Result<u8, CliError> {
    let found = Stores::of(args.store.as_deref()).find(&args.run)?;
    let row = found.row()?;
    if let Standing::Ended(status) = row.standing {
        tell(&row, &format!("had ended before: {}", status.as_str()), output)?;
        return Ok(exit::OK);
    }
    match Store::open(&row.store) {
        Ok(store) => {
            // Nobody has it under way: the store would be in use.
            store.give_up(&row.run, &args.reason).map_err(|error| unusable(&error))?;
            tell(&row, "was cut off, and has ended now", output)?;
            Ok(exit::OK)
        }
        Err(StoreError::InUse { .. }) => {
            let mail = Mail { room: row.run.clone(), word: Word::Stop { reason: args.reason.clone() } };
            mail.send(&row.store).map_err(|error| unusable(&error))?;
            wait(&found, (&row, &mail), Duration::from_secs(args.wait), output).await
        }
        Err(error) => Err(unusable(&error)),
    }
}

async fn wait(found: &InStore, (row, mail): (&RunRow, &Mail), most: Duration, output: Output) -> Result<u8, CliError> {
    let until = Instant::now() + most;
    loop {
        if let Standing::Ended(status) = found.row()?.standing {
            tell(row, &format!("has ended: {}", status.as_str()), output)?;
            return Ok(exit::OK);
        }
        if let Ok(store) = Store::open(&row.store) {
            // Its process ended without a word about it. Nobody else is to hear this one when the run is gone on with.
            take_back(mail, row)?;
            if let Word::Stop { reason } = &mail.word {
                store.give_up(&row.run, reason).map_err(|error| unusable(&error))?;
            }
            continue;
        }
        if Instant::now() >= until {
            if take_back(mail, row)? {
                let what = format!("the process of {} did not hear it within {} s; the word was taken back", row.run, most.as_secs());
                return Err(CliError::internal(what).hint("end that process, and say it again"));
            }
            let what = format!("{} was told to end, and had not ended after {} s", row.run, most.as_secs());
            return Err(CliError::internal(what).hint("it ends when its process hears of it, or when that ends: conclave runs"));
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Whether nobody had heard it.
fn take_back(word: &Mail, row: &RunRow) -> Result<bool, CliError> {
    Mail::take_back(&row.store, |mail| mail == word).map(|taken| !taken.is_empty()).map_err(|error| unusable(&error))
}

fn tell(row: &RunRow, what: &str, output: Output) -> Result<(), CliError> {
    if output.json {
        return stdout::line(serde_json::json!({ "type": "stopped", "run": row.run, "what": what }));
    }
    if output.quiet {
        return Ok(());
    }
    stdout::line(printable(&format!("{} {what}", row.run)))
}
