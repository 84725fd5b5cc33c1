//! `cargo xtask picture --pages`: the pictures of the server's pages. A script has a server play a
//! story, and captures its pages in a headless Chromium.

use std::process::Command;

use crate::components::{self, Optimised};
use crate::failure::XtaskFailure;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::servers;

/// The script with its configs beside it.
const SCRIPT: &str = "tests/data/web/pictures.py";
/// The folder of the pictures.
const PICTURES: &str = "docs/pictures";
/// The components that the configs name, besides the stock plugins.
const GUESTS: [&str; 2] = ["agent_hostile_tour", "weather"];
/// The exit code of the script without a browser.
const NO_BROWSER: i32 = 3;

pub(super) fn run(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut phases = Phases::new(place, 4, false);
    components::build_stock(place, &mut phases, Optimised::Fully)?;
    components::build_some_guests(place, &mut phases, &GUESTS)?;
    components::build_conclave(place, &mut phases, false)?;
    // Why there is none was printed.
    let Some(python) = servers::web(place, &mut phases)? else { return Ok(()) };
    let script = place.root.join(SCRIPT);
    let mut command = Command::new(&python);
    command.arg(&script).arg(place.conclave()).arg(place.root.join("docs/examples"));
    command.arg(place.guests()).arg(place.root.join(PICTURES));
    let ended = command.status().map_err(|error| XtaskFailure::io("run", &python, &error))?;
    match ended.code() {
        Some(0) => Ok(()),
        Some(NO_BROWSER) => {
            eprintln!("{PICTURES} stays as it is: there is no Chromium");
            Ok(())
        }
        _ => Err(XtaskFailure::new(format!("{SCRIPT} ended with {ended}"))),
    }
}
