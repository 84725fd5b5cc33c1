//! The groups of rows, and the bars of a drawing of a timeline.

use super::RowSubject;

/// Width of the drawings, in units.
pub const WIDTH: u64 = 1_000;

/// A group of rows that are shown and hidden together, and share a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGroup {
    Task,
    Step,
    Model,
    Tool,
    Effect,
    Approval,
    Refusal,
    Background,
    Other,
}

impl RowGroup {
    pub const ALL: [Self; 9] = [
        Self::Task,
        Self::Step,
        Self::Model,
        Self::Tool,
        Self::Effect,
        Self::Approval,
        Self::Refusal,
        Self::Background,
        Self::Other,
    ];

    /// The suffix of its classes and ids.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Step => "step",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Effect => "effect",
            Self::Approval => "approval",
            Self::Refusal => "refusal",
            Self::Background => "background",
            Self::Other => "other",
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "tasks",
            Self::Step => "steps",
            Self::Model => "model calls",
            Self::Tool => "tool calls",
            Self::Effect => "side effects",
            Self::Approval => "approvals and questions",
            Self::Refusal => "refusals",
            Self::Background => "background and delivery",
            Self::Other => "other",
        }
    }

    /// The offset from the top of a lane, and the height. Rows inside a step are drawn over it.
    #[must_use]
    pub fn place(self) -> (u64, u64) {
        match self {
            Self::Refusal | Self::Other => (0, 22),
            Self::Step | Self::Task => (3, 16),
            _ => (6, 10),
        }
    }
}

#[must_use]
pub fn group(what: &RowSubject) -> RowGroup {
    match what {
        RowSubject::Task { .. } => RowGroup::Task,
        RowSubject::Step { .. } => RowGroup::Step,
        RowSubject::Model { .. } => RowGroup::Model,
        RowSubject::Tool { .. } => RowGroup::Tool,
        RowSubject::SideEffect { .. } => RowGroup::Effect,
        RowSubject::Approval { .. } | RowSubject::TopUp { .. } | RowSubject::User { .. } => {
            RowGroup::Approval
        }
        RowSubject::Denied { .. } => RowGroup::Refusal,
        RowSubject::Background { .. }
        | RowSubject::Strategy { .. }
        | RowSubject::Delivered { .. }
        | RowSubject::NotDelivered { .. } => RowGroup::Background,
        _ => RowGroup::Other,
    }
}

/// The start and the width of something in a drawing. The width is always visible.
#[must_use]
pub fn span(start: u64, end: Option<u64>, span_ms: u64) -> (u64, u64) {
    const LEAST: u64 = 3;
    let at = |ms: u64| {
        let units = u128::from(ms) * u128::from(WIDTH) / u128::from(span_ms.max(1));
        u64::try_from(units).unwrap_or(WIDTH).min(WIDTH)
    };
    let from = at(start).min(WIDTH - LEAST);
    let to = end.map_or(WIDTH, at);
    (from, to.saturating_sub(from).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_inside_the_drawing_and_seen() {
        for (start, end, span_ms) in [
            (0, Some(0), 0),
            (5, Some(5), 10),
            (10, Some(10), 10),
            (0, None, 10),
            (u64::MAX, None, 1),
            (9, Some(20), 10),
        ] {
            let (x, wide) = span(start, end, span_ms);
            assert!(wide >= 3 && x + wide <= WIDTH, "{start} {end:?} {span_ms}: {x} {wide}");
        }
    }
}
