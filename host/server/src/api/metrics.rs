//! The figures of a server in the text format of Prometheus.

use std::fmt::Write as _;

use conclave_runtime::store::RunTotals;

/// The figures of this process.
#[derive(Default)]
pub(super) struct ServerFigures {
    /// The open event streams.
    pub(super) streams: usize,
    /// The runs whose fold is in memory.
    pub(super) folds: usize,
    /// The records that were folded for views of runs since the start.
    pub(super) folded_records: u64,
    /// The questions that were read from records since the start.
    pub(super) read_questions: u64,
}

/// The figures of the runs of a config that the store has, of what waits for an approval, and of
/// this process. What the store has shrinks when retention removes runs, so it is no counter.
pub(super) fn text(totals: &RunTotals, figures: &ServerFigures) -> String {
    let mut text = String::new();
    head(&mut text, "conclave_runs", "gauge", "Stored runs by their state.");
    for (state, count) in &totals.states {
        let _ = writeln!(text, "conclave_runs{{state=\"{state}\"}} {count}");
    }
    let ServerFigures { streams, folds, folded_records, read_questions } = figures;
    for (name, kind, help, value) in [
        ("conclave_stored_turns", "gauge", "Turns of the stored runs.", totals.turns),
        ("conclave_stored_tokens", "gauge", "Tokens of the stored runs.", totals.tokens),
        (
            "conclave_stored_cost_micro_usd",
            "gauge",
            "Cost of the stored runs in millionths of a US dollar.",
            totals.cost_micro_usd,
        ),
        ("conclave_stored_records", "gauge", "Records of the stored runs.", totals.records),
        (
            "conclave_approvals_pending",
            "gauge",
            "Calls that wait for an approval.",
            totals.approvals,
        ),
        ("conclave_event_streams", "gauge", "Open event streams.", *streams as u64),
        ("conclave_folded_runs", "gauge", "Runs in memory for their views.", *folds as u64),
        (
            "conclave_folded_records_total",
            "counter",
            "Records read for views of runs since the start of the server.",
            *folded_records,
        ),
        (
            "conclave_read_questions_total",
            "counter",
            "Questions read from the records of their runs since the start of the server.",
            *read_questions,
        ),
    ] {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "{name} {value}");
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_type_and_a_value() {
        let figures = ServerFigures { streams: 3, folds: 1, folded_records: 9, read_questions: 4 };
        let text = text(&RunTotals { approvals: 2, ..RunTotals::default() }, &figures);
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "conclave_stored_turns 0",
                "conclave_stored_tokens 0",
                "conclave_stored_cost_micro_usd 0",
                "conclave_stored_records 0",
                "conclave_approvals_pending 2",
                "conclave_event_streams 3",
                "conclave_folded_runs 1",
                "conclave_folded_records_total 9",
                "conclave_read_questions_total 4",
            ]
        );
        for value in values {
            let name = value.split(' ').next().unwrap_or_default();
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        }
    }
}
