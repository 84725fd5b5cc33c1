//! Components that stand for more than their bytes, written from a recipe: the input chooses types,
//! names, aliases, nesting and instances, each repeated. What the host allocates to look at one is
//! limited, whatever the recipe.

use conclave_runtime::plugin::inspect;

use crate::allocated;

/// Bytes of a component, at most: an input of the longest length with the most repetitions has more.
const COMPONENT: usize = 1 << 20;
/// Bytes that looking at a component may allocate, besides twice its own size.
const LOOK: usize = 16 << 20;

pub(super) fn check(input: &[u8]) {
    let component = cook(input);
    let (inspected, cost) = allocated(|| inspect(&component));
    let most = 2 * component.len() + LOOK;
    assert!(cost <= most, "{cost} bytes for a component of {}", component.len());
    if let Err(error) = inspected {
        let told = error.to_string();
        assert!(!told.is_empty() && told.len() < 4 << 10, "an error of {} bytes", told.len());
    }
}

/// Returns the component of a recipe: two bytes for each part, its kind and how often.
fn cook(recipe: &[u8]) -> Vec<u8> {
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    for part in recipe.chunks_exact(2) {
        let count = u32::from(part[1]) * u32::from(part[1]) + 1;
        let (id, body) = section(part[0], count, &component);
        if component.len() + body.len() > COMPONENT {
            break;
        }
        component.push(id);
        component.extend(leb(u32::try_from(body.len()).expect("it is short")));
        component.extend(body);
    }
    component
}

fn section(kind: u8, count: u32, before: &[u8]) -> (u8, Vec<u8>) {
    let several = |item: &dyn Fn(u32) -> Vec<u8>| {
        let items = (0..count).flat_map(item);
        leb(count).into_iter().chain(items).collect::<Vec<u8>>()
    };
    let name = |length: u32| [leb(length), vec![b'n'; length as usize]].concat();
    match kind % 10 {
        // Tuples of the type before, twice.
        0 => (7, several(&|number| [vec![0x6f, 2], leb(number), leb(number)].concat())),
        // One enum of many names.
        1 => (7, [vec![1, 0x6d], several(&|number| name(number % 9))].concat()),
        // Types of instances inside one another.
        2 => (7, [vec![1], [0x42, 1, 1].repeat(count as usize), vec![0x7d]].concat()),
        // Aliases of a type.
        3 => (6, several(&|number| [vec![3, 2, 0], leb(number)].concat())),
        // Exports with long names.
        4 => (
            11,
            several(&|number| [vec![0], name(number % 99), vec![3], leb(number), vec![0]].concat()),
        ),
        // Imports of types.
        5 => (10, several(&|number| [vec![0], name(number % 9), vec![3, 0], leb(number)].concat())),
        // All of it as a component inside.
        6 => (4, before.to_vec()),
        // Instances of the components so far.
        7 => (5, several(&|number| [vec![0], leb(number % 3), vec![0]].concat())),
        // A module with many types of functions.
        8 => {
            let types = several(&|_| vec![0x60, 0, 0]);
            let length = leb(u32::try_from(types.len()).expect("it is short"));
            (1, [b"\0asm\x01\0\0\0\x01".to_vec(), length, types].concat())
        }
        // A manifest.
        _ => (0, [name_of("conclave:manifest"), vec![b'['; count as usize]].concat()),
    }
}

fn name_of(text: &str) -> Vec<u8> {
    [leb(u32::try_from(text.len()).expect("it is short")), text.as_bytes().to_vec()].concat()
}

fn leb(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}
