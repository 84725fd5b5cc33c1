//! The drawing of a map of rights: plugins in columns by how many calls they are away from an
//! agent that nobody calls, and at the right what they can reach. The page says the same in words.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::inspect::rights_map::{Reach, ReachKind, RightsMap};
use conclave_core::types::text::cut_chars;
use maud::{Markup, html};

/// Plugins and things up to which a drawing says more than the list.
const PLUGINS: usize = 40;
const THINGS: usize = 60;
/// Columns of plugins; calls behind the last stay in it.
const COLUMNS: usize = 4;
/// The sizes of a node, the gaps between two, and the characters of a name that fit.
const WIDE: usize = 188;
const HIGH: usize = 40;
const GAP_X: usize = 96;
const GAP_Y: usize = 14;
const NAME: usize = 24;

/// The heading of things of a kind.
pub(super) fn kind_name(kind: ReachKind) -> &'static str {
    match kind {
        ReachKind::Program => "Programs",
        ReachKind::Model => "Models",
        ReachKind::Folder => "Folders",
        ReachKind::Address => "Addresses",
        ReachKind::Secret => "Secrets",
        ReachKind::Channel => "Channels",
    }
}

/// The place of a node.
#[derive(Clone, Copy)]
struct Spot {
    x: usize,
    y: usize,
}

/// A line between two nodes.
struct Line {
    path: String,
    class: &'static str,
}

/// The drawing; nothing if there is little to see, or too much.
pub(super) fn drawing(map: &RightsMap) -> Markup {
    let things: BTreeSet<(ReachKind, &str)> =
        map.plugins.iter().flat_map(|it| &it.reaches).map(thing).collect();
    if map.plugins.len() > PLUGINS || things.len() > THINGS {
        return html! { p.faint { "There is more than a drawing can show; the list has all of it." } };
    }
    let columns = columns(map);
    let last = columns.iter().max().copied().unwrap_or_default();
    let mut heights = vec![0; last + 2];
    let mut spot = |column: usize| {
        let row = heights[column];
        heights[column] += 1;
        Spot { x: 1 + column * (WIDE + GAP_X), y: 1 + row * (HIGH + GAP_Y) }
    };
    let plugins: Vec<Spot> = columns.iter().map(|column| spot(*column)).collect();
    let of_thing: BTreeMap<(ReachKind, &str), Spot> =
        things.iter().map(|thing| (*thing, spot(last + 1))).collect();
    let lines = lines(map, &plugins, &of_thing);
    let rows = heights.iter().max().copied().unwrap_or_default().max(1);
    let wide = if things.is_empty() { last + 1 } else { last + 2 };
    let (wide, high) = (wide * (WIDE + GAP_X) - GAP_X + 2, rows * (HIGH + GAP_Y) - GAP_Y + 2);
    html! {
        figure.graph tabindex="0" aria-label="Drawing of the rights; the list below says the same" {
            svg width=(wide) height=(high) viewBox={ "0 0 " (wide) " " (high) } role="img"
                aria-label="Plugins, whom each can call, and what each can reach" {
                @for line in &lines { path class=(line.class) d=(line.path) {} }
                @for (index, (node, at)) in map.plugins.iter().zip(&plugins).enumerate() {
                    @let kind = node.kinds.iter().next().map_or("", |kind| kind.as_str());
                    a href={ "#p" (index) } {
                        (shape(*at, "plugin", node.plugin.as_str(), kind))
                    }
                }
                @for ((kind, name), at) in &of_thing {
                    (shape(*at, "thing", name, kind.as_str()))
                }
            }
        }
        ul.counts aria-hidden="true" {
            li { svg.stroke viewBox="0 0 24 8" { path.call d="M0 4H24" {} } "calls" }
            li { svg.stroke viewBox="0 0 24 8" { path.asks d="M0 4H24" {} } "calls after an approval" }
            li { svg.stroke viewBox="0 0 24 8" { path.reach d="M0 4H24" {} } "can reach" }
        }
    }
}

fn thing(reach: &Reach) -> (ReachKind, &str) {
    (reach.kind, reach.name.as_str())
}

/// The column of each plugin: its distance from those that nobody else calls.
fn columns(map: &RightsMap) -> Vec<usize> {
    let index: BTreeMap<&str, usize> =
        map.plugins.iter().enumerate().map(|(index, it)| (it.plugin.as_str(), index)).collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); map.plugins.len()];
    let mut is_called = vec![false; map.plugins.len()];
    for call in map.calls.iter().filter(|call| call.from != call.to) {
        let ends = (index.get(call.from.as_str()), index.get(call.to.as_str()));
        if let (Some(from), Some(to)) = ends {
            next[*from].push(*to);
            is_called[*to] = true;
        }
    }
    let mut columns = vec![None; map.plugins.len()];
    // Those in a circle that nobody outside calls begin with the first of them.
    let first = (0..columns.len()).filter(|at| !is_called[*at]).chain(0..columns.len());
    for start in first {
        let mut edge = vec![start];
        let mut column = 0;
        while !edge.is_empty() {
            edge.retain(|at| columns[*at].is_none());
            edge.iter().for_each(|at| columns[*at] = Some(column));
            edge = edge.iter().flat_map(|at| next[*at].iter().copied()).collect();
            column = (column + 1).min(COLUMNS - 1);
        }
    }
    columns.into_iter().map(Option::unwrap_or_default).collect()
}

fn lines(
    map: &RightsMap,
    plugins: &[Spot],
    of_thing: &BTreeMap<(ReachKind, &str), Spot>,
) -> Vec<Line> {
    let at = |name: &str| {
        let index = map.plugins.iter().position(|it| it.plugin.as_str() == name)?;
        plugins.get(index).copied()
    };
    // One line for all calls between two plugins: it asks if each of them does.
    let mut calls: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for call in map.calls.iter().filter(|call| call.from != call.to) {
        let asks = calls.entry((call.from.as_str(), call.to.as_str())).or_insert(true);
        *asks &= call.asks;
    }
    let calls = calls.into_iter().filter_map(|((from, to), asks)| {
        let class = if asks { "asks" } else { "call" };
        Some(Line { path: curve(at(from)?, at(to)?), class })
    });
    let reaches = map.plugins.iter().zip(plugins).flat_map(|(node, from)| {
        let to = node.reaches.iter().filter_map(|reach| of_thing.get(&thing(reach)));
        to.map(|to| Line { path: curve(*from, *to), class: "reach" })
    });
    reaches.chain(calls).collect()
}

/// A line from the right side of a node to the left one of another; to one that is not further
/// right, around on the right.
fn curve(from: Spot, to: Spot) -> String {
    let (x, y) = (from.x + WIDE, from.y + HIGH / 2);
    let end = to.y + HIGH / 2;
    if to.x > from.x {
        let middle = (x + to.x) / 2;
        format!("M{x} {y}C{middle} {y} {middle} {end} {} {end}", to.x)
    } else {
        let (end_x, out) = (to.x + WIDE, x.max(to.x + WIDE) + GAP_X / 2);
        format!("M{x} {y}C{out} {y} {out} {end} {end_x} {end}")
    }
}

fn shape(at: Spot, class: &str, name: &str, kind: &str) -> Markup {
    html! {
        g class={ "node " (class) } {
            title { (name) }
            rect x=(at.x) y=(at.y) width=(WIDE) height=(HIGH) rx="8" {}
            text.name x=(at.x + 10) y=(at.y + 17) { (cut_chars(name, NAME)) }
            text.kind x=(at.x + 10) y=(at.y + 32) { (kind) }
        }
    }
}
