//! Mutations of an input: bytes, words of the target, lines, and nodes of JSON. The output depends
//! only on the input and a seed.

use serde_json::Value;

use crate::{Random, Target};

/// Numbers at the limits of counters, sizes and indices.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "1e308",
    "0.1",
    "5e-324",
];

/// Texts that nest when repeated.
const DEEP: [&str; 6] = ["[", "{\"a\":", "(", "<a>", "a.", "{"];

/// Mutates an input in a few places; `others` are inputs to take parts from.
#[must_use]
pub fn mutate(input: &[u8], others: &[Vec<u8>], random: &mut Random, target: &Target) -> Vec<u8> {
    let mut changed = input.to_vec();
    for _ in 0..=random.below(4) {
        changed = match random.below(10) {
            0..=3 => bytes(changed, random),
            4 => words(changed, random, target),
            5 => match random.pick(others) {
                Some(other) => splice(&changed, other, random),
                None => bytes(changed, random),
            },
            _ => structure(&changed, random.number(), target),
        };
    }
    changed.truncate(target.longest);
    changed
}

/// Mutates the lines, words and JSON nodes of an input.
#[must_use]
pub fn structure(input: &[u8], seed: u64, target: &Target) -> Vec<u8> {
    let mut random = Random::new(seed);
    if random.once_in(4) {
        return words(input.to_vec(), &mut random, target);
    }
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = random.below(lines.len());
    match random.below(8) {
        0 => {
            let line = lines[at].clone();
            let to = random.below(lines.len() + 1);
            lines.insert(to, line);
        }
        1 => drop(lines.remove(at)),
        2 => {
            let other = random.below(lines.len());
            lines.swap(at, other);
        }
        _ => match changed_json(input, &mut random, target) {
            Some(whole) => return whole,
            None => match changed_json(&lines[at], &mut random, target) {
                Some(line) => lines[at] = line,
                None => return words(input.to_vec(), &mut random, target),
            },
        },
    }
    lines.join(&b'\n')
}

fn bytes(mut input: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = random.below(input.len());
    let length = 1 + random.below(input.len() - at.min(input.len())).min(32);
    let end = (at + length).min(input.len());
    match random.below(5) {
        _ if input.is_empty() => input.push(random.number().to_le_bytes()[0]),
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.number().to_le_bytes()[0],
        2 => input.insert(at, random.number().to_le_bytes()[0]),
        3 => drop(input.drain(at..end)),
        _ => {
            let piece = input[at..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
    }
    input
}

fn words(mut input: Vec<u8>, random: &mut Random, target: &Target) -> Vec<u8> {
    let word = match random.pick(target.words) {
        Some(word) if !random.once_in(4) => *word,
        _ => random.pick(&NUMBERS).copied().unwrap_or_default(),
    };
    let at = random.below(input.len() + 1);
    let end = if random.once_in(2) { at } else { (at + random.below(16)).min(input.len()) };
    // Many repeats of a word nest deeply, or cause disproportionate work.
    let (word, times) = match random.below(32) {
        0 => (*random.pick(&DEEP).unwrap_or(&word), 1 + random.below(20_000)),
        1 | 2 => (word, 1 + random.below(200)),
        _ => (word, 1),
    };
    input.splice(at..end, word.repeat(times).into_bytes());
    input
}

fn splice(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let (from, to) = (random.below(input.len() + 1), random.below(other.len() + 1));
    let end = to + random.below(other.len() - to + 1);
    [&input[..from], &other[to..end], &input[from..]].concat()
}

/// Returns a JSON text with one node changed; `None` if the text is not JSON.
fn changed_json(text: &[u8], random: &mut Random, target: &Target) -> Option<Vec<u8>> {
    let mut whole: Value = serde_json::from_slice(text).ok()?;
    let mut nodes = Vec::new();
    collect(&whole, &mut nodes);
    let donor = random.pick(&nodes).map(|node| (*node).clone()).unwrap_or_default();
    let count = nodes.len();
    let mut index = random.below(count);
    let node = nth(&mut whole, &mut index)?;
    change(node, donor, random, target);
    serde_json::to_vec(&whole).ok()
}

fn change(node: &mut Value, donor: Value, random: &mut Random, target: &Target) {
    let word = random_word(random, target);
    match (random.below(8), &mut *node) {
        (0, Value::Object(fields)) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if let Some(key) = random.pick(&keys) {
                fields.remove(key);
            }
        }
        (1, Value::Object(fields)) => drop(fields.insert(word, donor)),
        (0, Value::Array(items)) if !items.is_empty() => {
            drop(items.remove(random.below(items.len())))
        }
        (1, Value::Array(items)) => items.insert(random.below(items.len() + 1), donor),
        (2, node) => *node = donor,
        (3, node) => *node = Value::String(word),
        (4, node) => {
            *node = serde_json::from_str(random.pick(&NUMBERS).copied().unwrap_or("0"))
                .unwrap_or_default()
        }
        (5, node) => {
            let levels = if random.once_in(8) { 400 } else { 1 };
            for _ in 0..levels {
                *node = Value::Array(vec![std::mem::take(node)]);
            }
        }
        (6, node) => {
            *node = random
                .pick(&[Value::Null, Value::Bool(true), Value::Bool(false)])
                .cloned()
                .unwrap_or_default()
        }
        (_, Value::Number(number)) => {
            *number = number.as_i64().map_or(0, |number| number ^ (1 << random.below(16))).into()
        }
        (_, Value::String(text)) => {
            *text = String::from_utf8_lossy(&bytes(text.clone().into_bytes(), random)).into_owned()
        }
        (_, node) => *node = donor,
    }
}

fn random_word(random: &mut Random, target: &Target) -> String {
    random.pick(target.words).copied().unwrap_or("a").trim_matches(['"', ':', ' ']).to_owned()
}

fn collect<'a>(value: &'a Value, nodes: &mut Vec<&'a Value>) {
    nodes.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, nodes)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, nodes)),
        _ => {}
    }
}

/// Returns the node of this number, counted as `collect` does.
fn nth<'a>(value: &'a mut Value, index: &mut usize) -> Option<&'a mut Value> {
    if *index == 0 {
        return Some(value);
    }
    *index -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, index)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, index)),
        _ => None,
    }
}
