//! The figures of a server in the text format of Prometheus.

use std::fmt::Write as _;

use conclave_runtime::store::RunTotals;

/// The figures of the runs of a config, of what waits for an approval, and of the open streams.
pub(super) fn text(totals: &RunTotals, streams: usize) -> String {
    let mut text = String::new();
    head(&mut text, "conclave_runs", "gauge", "Runs by their state.");
    for (state, count) in &totals.states {
        let _ = writeln!(text, "conclave_runs{{state=\"{state}\"}} {count}");
    }
    for (name, help, value) in [
        ("conclave_turns_total", "Turns of all runs.", totals.turns),
        ("conclave_tokens_total", "Tokens of all model requests.", totals.tokens),
        (
            "conclave_cost_micro_usd_total",
            "Cost of all model requests in millionths of a US dollar.",
            totals.cost_micro_usd,
        ),
        ("conclave_records_total", "Records of all runs.", totals.records),
    ] {
        head(&mut text, name, "counter", help);
        let _ = writeln!(text, "{name} {value}");
    }
    let (approvals, streams) = (totals.approvals, streams as u64);
    for (name, help, value) in [
        ("conclave_approvals_pending", "Calls that wait for an approval.", approvals),
        ("conclave_event_streams", "Open event streams.", streams),
    ] {
        head(&mut text, name, "gauge", help);
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
        let text = text(&RunTotals { approvals: 2, ..RunTotals::default() }, 3);
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "conclave_turns_total 0",
                "conclave_tokens_total 0",
                "conclave_cost_micro_usd_total 0",
                "conclave_records_total 0",
                "conclave_approvals_pending 2",
                "conclave_event_streams 3",
            ]
        );
        for value in values {
            let name = value.split(' ').next().unwrap_or_default();
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
}
