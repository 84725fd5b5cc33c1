//! `conclave workers`: the hosts of a shared store, with what they have in progress.

use anstyle::Style;
use conclave_core::types::ids::Millis;
use conclave_runtime::store::HostRow;
use serde_json::json;

use crate::args::{OutputArgs, WorkersArgs};
use crate::commands::worker::shared_address;
use crate::program::error::CliError;
use crate::state::store_address::named_store;
use crate::state::stores;
use crate::ui::show::amounts::{ago, now};
use crate::ui::show::listing::Listing;
use crate::ui::show::table::{self, Cells, Column};
use crate::ui::show::{FAINT, NAME, ODD};

const COLUMNS: [Column; 7] = [
    Column { head: "HOST", most: 40, goes: 0 },
    Column { head: "STATE", most: 24, goes: 0 },
    Column { head: "COMMAND", most: 12, goes: 3 },
    Column { head: "RUNS", most: 12, goes: 0 },
    Column { head: "EPOCH", most: 8, goes: 4 },
    Column { head: "STARTED", most: 12, goes: 2 },
    Column { head: "POOL", most: usize::MAX, goes: 1 },
];

pub(crate) fn workers(args: &WorkersArgs, output: OutputArgs) -> Result<u8, CliError> {
    let address = shared_address(named_store(args.store.as_ref())?, "a list of workers")?;
    let hosts = stores::read(&address)?.hosts()?;
    let now = now();
    let silent = hosts.iter().filter(|host| !host.is_live && host.runs > 0).count();
    let without = hosts.iter().filter(|host| host.is_live && host.lacks_blob_folder).count();
    let silent =
        (silent > 0).then_some("a silent host's runs are taken by the next worker of their pool");
    let without = (without > 0).then_some(
        "a worker without blobs takes no run: start it anew with `?blobs=FOLDER` in its address",
    );
    let notes = silent.into_iter().chain(without).map(str::to_owned);
    Listing {
        rows: table::rows(&COLUMNS, hosts.iter().map(|host| row(host, now))),
        json: hosts.iter().map(|host| {
            let mut value = json!(host);
            value["type"] = "host".into();
            value
        }),
        empty: "no host has this store open; `conclave worker CONFIG` starts a worker".to_owned(),
        notes: notes.collect(),
    }
    .print(output)
}

fn row(host: &HostRow, now: Millis) -> Cells {
    let runs = match host.capacity {
        0 => host.runs.to_string(),
        capacity => format!("{} of {capacity}", host.runs),
    };
    let (state, style) = if host.is_live && host.lacks_blob_folder {
        ("without blobs".to_owned(), ODD)
    } else if host.is_live {
        ("live".to_owned(), FAINT)
    } else {
        let since = Millis(now.0.saturating_sub(host.silent_ms));
        (format!("silent, {}", ago(since, now)), ODD)
    };
    let epoch = if host.epoch > 0 { host.epoch.to_string() } else { String::new() };
    vec![
        (NAME, host.host.clone()),
        (style, state),
        (FAINT, host.command.clone()),
        (Style::new(), runs),
        (FAINT, epoch),
        (FAINT, ago(host.started, now)),
        (FAINT, host.pool.clone().unwrap_or_default()),
    ]
}
