//! Checks that every code that a user can see has a row in docs/use/troubleshooting.md. A new
//! variant of one of these enums does not compile here until it is listed, and then fails until it
//! has a row.

use conclave_core::config::ProblemCode;
use conclave_core::types::completion::ModelDiagnosticKind;
use conclave_core::types::denial::Layer;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::{EndCause, Status};
use conclave_core::types::request::RefusalCode;
use serde_json::{Value, json};

use super::{read, root};

/// Lists variants. The `match` names each, so that the compiler reports an omitted one.
macro_rules! all {
    ($kind:ident: $($variant:ident),+ $(,)?) => {{
        let is_listed = |kind: &$kind| match kind {
            $($kind::$variant { .. } => true,)+
        };
        let all = [$($kind::$variant),+];
        assert!(all.iter().all(is_listed));
        all
    }};
}

/// Returns the words in backticks, or the numbers, of the first column of this section's tables.
fn codes_of(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("the page has {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ").map(|word| word.trim_matches('`').to_owned())).collect()
}

fn word(value: &Value) -> String {
    value["code"].as_str().or(value.as_str()).expect("a code is a word").to_owned()
}

fn check(page: &str, heading: &str, codes: impl IntoIterator<Item = String>) {
    let rows = codes_of(page, heading);
    let missing: Vec<String> = codes.into_iter().filter(|code| !rows.contains(code)).collect();
    assert!(
        missing.is_empty(),
        "docs/use/troubleshooting.md has no row under {heading} for {missing:?}"
    );
}

#[test]
fn every_code_has_a_row_in_troubleshooting() {
    let page = read(&root().join("docs/use/troubleshooting.md"));
    let statuses = all!(Status: Done, Rejected, FixedTurns, MaxTurns, Stalled, Kill, Timeout, MaxCost, MaxTokens, MaxCalls, MaxCpu,
        MaxHistory, InfLoop, NotAddressed, Error, UserQuit, InternalError);
    check(&page, "Endings", statuses.map(|status| status.as_str().to_owned()));
    let causes = [
        EndCause::WallTime,
        EndCause::Cancelled,
        EndCause::NoStructuredResult { attempts: 1 },
        EndCause::NobodyToAsk,
    ];
    check(&page, "Endings", causes.map(|code| word(&json!(code))));
    let layers = all!(Layer: Manifest, Config, Task, Runtime, Policy, Host);
    check(&page, "Refusals of a capability", layers.map(|layer| layer.as_str().to_owned()));
    let troubles = all!(ModelDiagnosticKind: Key, Unreachable, Unavailable, NotFound, Refused, Limit, Malformed);
    check(&page, "Refusals of a capability", troubles.map(|code| word(&json!(code))));
    let faults = all!(FaultKind: Memory, Cpu, Wall, Stack, Output, HostCalls, Handles, Tables, Instances, List, Panic, Trap, BadAnswer,
        Error, Abandoned, NotStarted, Interrupted);
    check(&page, "Faults of a plugin", faults.map(|fault| fault.as_str().to_owned()));
    let refusals = all!(RefusalCode: RoomNotFound, RoomClosed, UnknownAgent, NotGranted, EmptyTask, BadArguments, LimitReached,
        UnknownChannel, ChannelNotShared, UnknownTask, TaskEnded, NoAccess, RateLimited, BudgetUsedUp, ChainDepth, Blocked, Busy, ObserverStopped, KeyReused);
    check(&page, "Refused requests and delegations", refusals.map(|code| word(&json!(code))));
    let problems = ProblemCode::ALL.iter().map(|code| word(&json!(code)));
    check(&page, "A config that is refused", problems);
}

/// The exit codes of the page must equal those of the command line's table.
#[test]
fn exit_codes_are_the_same_in_both_tables() {
    let troubleshooting = read(&root().join("docs/use/troubleshooting.md"));
    let numbers = |codes: Vec<String>| {
        codes.into_iter().filter(|code| code.parse::<u8>().is_ok()).collect::<Vec<_>>()
    };
    let cli = read(&root().join("docs/reference/cli.md"));
    let (_, table) = cli.split_once("| exit code | meaning |\n").expect("the page has the table");
    let cells = table
        .lines()
        .map_while(|line| line.strip_prefix('|'))
        .filter_map(|line| line.split('|').next());
    let of_cli = numbers(cells.map(|cell| cell.trim().to_owned()).collect());
    assert_eq!(numbers(codes_of(&troubleshooting, "Exit codes")), of_cli);
    assert!(of_cli.len() > 9, "{of_cli:?}");
}
