//! The figures of a server in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conclave_runtime::store::RunTotals;

type Figure = (&'static str, &'static str, &'static str, fn(&ConfigFigures<'_>) -> u64);

/// The figures besides the states of runs, each with its type and what it says.
const FIGURES: [Figure; 9] = [
    ("conclave_stored_turns", "gauge", "Turns of the stored runs.", |it| it.totals.turns),
    ("conclave_stored_tokens", "gauge", "Tokens of the stored runs.", |it| it.totals.tokens),
    (
        "conclave_stored_cost_micro_usd",
        "gauge",
        "Cost of the stored runs in millionths of a US dollar.",
        |it| it.totals.cost_micro_usd,
    ),
    ("conclave_stored_records", "gauge", "Records of the stored runs.", |it| it.totals.records),
    ("conclave_approvals_pending", "gauge", "Calls that wait for an approval.", |it| {
        it.totals.approvals
    }),
    ("conclave_event_streams", "gauge", "Open event streams.", |it| it.server.streams as u64),
    ("conclave_folded_runs", "gauge", "Runs in memory for their views.", |it| {
        it.server.folds as u64
    }),
    (
        "conclave_folded_records_total",
        "counter",
        "Records read for views of runs since the start of the server.",
        |it| it.server.folded_records,
    ),
    (
        "conclave_read_questions_total",
        "counter",
        "Questions read from the records of their runs since the start of the server.",
        |it| it.server.read_questions,
    ),
];

/// The figures of a server in this process.
#[derive(Default)]
pub(crate) struct ServerFigures {
    /// The open event streams.
    pub(crate) streams: usize,
    /// The runs whose fold is in memory.
    pub(crate) folds: usize,
    /// The records that were folded for views of runs since the start.
    pub(crate) folded_records: u64,
    /// The questions that were read from records since the start.
    pub(crate) read_questions: u64,
    /// The webhooks that came in since the start, by the code of their answers.
    pub(crate) hooks: BTreeMap<String, u64>,
}

/// The figures of a config, with its name if there are several.
pub(crate) struct ConfigFigures<'a> {
    pub(crate) config: Option<&'a str>,
    pub(crate) totals: RunTotals,
    pub(crate) server: ServerFigures,
}

/// The figures of the runs of configs that the store has, of what waits for an approval, and of
/// their servers. What the store has shrinks when retention removes runs, so it is no counter.
pub(super) fn text(all: &[ConfigFigures<'_>]) -> String {
    let mut text = String::new();
    head(&mut text, "conclave_runs", "gauge", "Stored runs by their state.");
    for ConfigFigures { config, totals, .. } in all {
        let config = config.map(|name| format!("config=\"{name}\",")).unwrap_or_default();
        for (state, count) in &totals.states {
            let _ = writeln!(text, "conclave_runs{{{config}state=\"{state}\"}} {count}");
        }
    }
    head(
        &mut text,
        "conclave_webhooks_total",
        "counter",
        "Webhooks that came in since the start of the server, by the code of the answer.",
    );
    for ConfigFigures { config, server, .. } in all {
        let config = config.map(|name| format!("config=\"{name}\",")).unwrap_or_default();
        for (code, count) in &server.hooks {
            let _ = writeln!(text, "conclave_webhooks_total{{{config}code=\"{code}\"}} {count}");
        }
    }
    for (name, kind, help, value) in FIGURES {
        head(&mut text, name, kind, help);
        for figures in all {
            let config = figures.config.map(|name| format!("{{config=\"{name}\"}}"));
            let _ = writeln!(text, "{name}{} {}", config.unwrap_or_default(), value(figures));
        }
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
        let server = ServerFigures {
            streams: 3,
            folds: 1,
            folded_records: 9,
            read_questions: 4,
            hooks: [("accepted".to_owned(), 2)].into(),
        };
        let totals = RunTotals { approvals: 2, ..RunTotals::default() };
        let text = text(&[ConfigFigures { config: None, totals, server }]);
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "conclave_webhooks_total{code=\"accepted\"} 2",
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
            let name = value.split([' ', '{']).next().unwrap_or_default();
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        }
    }

    #[test]
    fn of_several_configs_each_figure_has_their_names() {
        let of = |config, turns| {
            let states = [("done".to_owned(), 1)].into();
            let totals = RunTotals { turns, states, ..RunTotals::default() };
            ConfigFigures { config: Some(config), totals, server: ServerFigures::default() }
        };
        let text = text(&[of("a", 2), of("b", 3)]);
        for line in [
            "conclave_runs{config=\"a\",state=\"done\"} 1",
            "conclave_stored_turns{config=\"b\"} 3",
            "conclave_event_streams{config=\"b\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        assert_eq!(text.matches("# TYPE conclave_stored_turns ").count(), 1);
    }
}
