//! Small components that stand for much more than their bytes. Costs are counted in allocated bytes,
//! which are the same on every machine, and include memory that was freed again.

use std::fmt::Write as _;

use allocation_counter::measure;
use wasm_encoder::{Component, CustomSection, RawSection};
use wasmtime::Engine;

use super::super::{LoadError, inspect};
use super::SECTIONS;
use crate::sandbox::plain::{Excess, FunctionDocs, PlainTools};

/// Bytes that looking at a component may allocate, besides twice its own size.
const LOOK: u64 = 16 << 20;
/// Bytes that the descriptions of a component's functions may allocate.
const DESCRIBE: u64 = 64 << 20;

fn component(wat: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {wat})")).expect("it is a component")
}

/// Looks at a component. Returns the limit that it exceeds, or another reason for its refusal.
fn look(bytes: &[u8]) -> Result<(), String> {
    let mut looked = None;
    let cost = measure(|| looked = Some(inspect(bytes))).bytes_total;
    let most = 2 * bytes.len() as u64 + LOOK;
    assert!(cost <= most, "{cost} bytes for a component of {}", bytes.len());
    match looked.expect("it was looked at") {
        Ok(_) => Ok(()),
        Err(LoadError::Budget { what, .. }) => Err(what.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Describes the functions of a component. Returns the number of tools and of the others.
fn describe(bytes: &[u8]) -> Result<(usize, usize), Excess> {
    let component = wasmtime::component::Component::from_binary(&Engine::default(), bytes)
        .expect("it can be compiled");
    let mut found = None;
    let cost = measure(|| found = Some(PlainTools::find(&component, &FunctionDocs::read(bytes))))
        .bytes_total;
    assert!(cost <= DESCRIBE, "{cost} bytes for a component of {}", bytes.len());
    found.expect("it was described").map(|found| (found.specs().len(), found.unserved.len()))
}

/// Returns a component with a function of this type, exported `count` times.
fn exported(types: &str, function: &str, count: usize) -> Vec<u8> {
    // Large arguments are behind a pointer, and a small result is a number.
    let core = match function {
        "" => "",
        results if results.starts_with("(result") => "(result i32) i32.const 0",
        _ => "(param i32)",
    };
    let mut wat = format!(
        "{types}
        (core module $m
            (memory (export \"memory\") 1)
            (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) i32.const 0)
            (func (export \"f\") {core}))
        (core instance $i (instantiate $m))
        (func $f {function} (canon lift
            (core func $i \"f\") (memory $i \"memory\") (realloc (func $i \"realloc\"))))"
    );
    (0..count).for_each(|number| {
        let _ = write!(wat, "(export \"f{number}\" (func $f))");
    });
    component(&wat)
}

fn names(count: usize) -> String {
    (0..count).map(|number| format!("\"n{number}\" ")).collect()
}

/// Returns a type of names, which takes one part and as many names.
fn names_of(kind: &str, count: usize) -> String {
    format!("(type $own ({kind} {})) (import \"t\" (type $t (eq $own)))", names(count))
}

const LARGE: Excess =
    Excess { what: "bytes in the types of its functions, written out", limit: 512 << 10 };

#[test]
fn many_exports_of_one_large_type_are_refused_before_they_are_described() {
    let words = names_of("enum", 950);
    let numbers = format!("(type $t (tuple {}))", "u8 ".repeat(900));
    for types in [words, numbers] {
        let many = exported(&types, "(param \"a\" $t)", 5_000);
        assert_eq!(look(&many), Err("exports".to_owned()));
        assert_eq!(describe(&exported(&types, "(param \"a\" $t)", 900)), Err(LARGE));
    }
    let functions = Excess { what: "exported functions", limit: 1_000 };
    assert_eq!(describe(&exported("", "", 1_001)), Err(functions));
    assert_eq!(describe(&exported("", "(result u8)", 100)), Ok((100, 0)));
}

#[test]
fn types_that_double_at_each_level_are_not_written_out() {
    let tuples = (1..=11).fold("(type $t0 (tuple u8 u8))".to_owned(), |types, level| {
        let below = level - 1;
        format!("{types} (type $t{level} (tuple $t{below} $t{below}))")
    });
    let fields = "(type $r0 (record (field \"a\" u8))) (import \"r0\" (type $q0 (eq $r0)))";
    let records = (1..=11).fold(fields.to_owned(), |types, level| {
        let below = level - 1;
        format!(
            "{types} (type $r{level} (record (field \"a\" $q{below}) (field \"b\" $q{below})))
             (import \"r{level}\" (type $q{level} (eq $r{level})))"
        )
    });
    for (types, function) in [(tuples, "(param \"a\" $t11)"), (records, "(param \"a\" $q11)")] {
        let few = exported(&types, function, 4);
        assert_eq!(look(&few), Ok(()), "it is small");
        assert_eq!(describe(&few).map(|(tools, others)| tools + others), Ok(4));
        assert_eq!(describe(&exported(&types, function, 64)), Err(LARGE));
    }
}

#[test]
fn a_chain_of_aliases_is_counted() {
    // An alias of the type before: 4 bytes each.
    let of = |count: u32| {
        let mut bytes = component("(type $t0 u8)");
        let mut data = leb(count);
        for number in 0..count {
            data.extend([0x03, 0x02, 0x00]);
            data.extend(leb(number));
        }
        bytes.push(6);
        bytes.extend(leb(u32::try_from(data.len()).expect("it is small")));
        bytes.extend(data);
        bytes
    };
    assert_eq!(look(&of(120_000)), Err("types, fields and other declarations".to_owned()));
    assert_eq!(look(&of(1_000)), Err(NOTHING.to_owned()));
}

#[test]
fn long_names_are_counted_wherever_they_are() {
    let long = "n".repeat(40_000);
    let exports: String =
        (0..40).map(|number| format!("(export \"{long}{number}\" (func $f))")).collect();
    let of_exports = component(&format!("(import \"f\" (func $f)) {exports}"));
    let of_fields = component(&format!("(type (record (field \"{long}\" u8)))").repeat(40));
    let of_instances = component(
        &format!("(type (instance (type (enum \"{long}\")) (export \"{long}\" (func))))")
            .repeat(20),
    );
    for bytes in [of_exports, of_fields, of_instances] {
        assert_eq!(look(&bytes), Err("bytes of names".to_owned()));
    }
}

#[test]
fn documents_of_any_size_cost_nothing_and_a_manifest_is_limited() {
    let custom = |name: &'static str, bytes: usize| {
        let mut component = Component::new();
        let data = vec![b' '; bytes];
        component.section(&CustomSection { name: name.into(), data: data.as_slice().into() });
        component.finish()
    };
    assert_eq!(look(&custom("package-docs", 40 << 20)), Err(NOTHING.to_owned()));
    assert_eq!(
        look(&custom("conclave:manifest", 65 << 10)),
        Err("bytes in its manifest".to_owned())
    );
}

#[test]
fn sections_are_counted_wherever_they_are_and_however_small() {
    let empty = || CustomSection { name: "x".into(), data: [].as_slice().into() };
    let outermost = |sections: u64| {
        let mut component = Component::new();
        (0..sections).for_each(|_| {
            component.section(&empty());
        });
        component.finish()
    };
    // The file's own header and end count too.
    let no_tool = look(&outermost(SECTIONS - 2)).expect_err("it does nothing");
    assert!(no_tool.contains("exports no interface"), "{no_tool}");
    assert_eq!(look(&outermost(SECTIONS)), Err("sections".to_owned()));
    let mut module = wasm_encoder::Module::new();
    (0..SECTIONS).for_each(|_| {
        module.section(&empty());
    });
    let mut outer = Component::new();
    outer.section(&wasm_encoder::ModuleSection(&module));
    assert_eq!(look(&outer.finish()), Err("sections".to_owned()));
}

#[test]
fn components_and_types_inside_one_another_are_limited() {
    let nested = |levels: usize| {
        (1..levels).fold(Component::new().finish(), |inner, _| {
            let mut outer = Component::new();
            outer.section(&RawSection { id: 4, data: &inner });
            outer.finish()
        })
    };
    let deep = Err("components and types inside one another".to_owned());
    assert_eq!(look(&nested(33)), deep);
    assert_eq!(look(&nested(32)), Err(NOTHING.to_owned()));
    // Three bytes for each level: a reader that recurses overflows its stack.
    let types = |levels: usize| {
        let mut data = vec![1];
        (0..levels).for_each(|_| data.extend([0x42, 0x01, 0x01]));
        data.push(0x7d);
        let mut component = Component::new();
        component.section(&RawSection { id: 7, data: &data });
        component.finish()
    };
    assert_eq!(look(&types(1_000_000)), deep);
    assert_eq!(look(&types(30)), Err(NOTHING.to_owned()));
}

#[test]
fn instances_that_multiply_are_counted_before_they_are_made() {
    let multiplied = |levels: usize| {
        let innermost = "(component $c0 (core module $m) (core instance (instantiate $m)))";
        (1..=levels).fold(innermost.to_owned(), |below, level| {
            let inner = level - 1;
            let made = format!("(instance (instantiate $c{inner}))").repeat(10);
            format!("(component $c{level} {below} {made})")
        })
    };
    let of = |levels: usize| {
        let made = format!("(instance (instantiate $c{levels}))");
        component(&format!("{} {made}", multiplied(levels)))
    };
    assert_eq!(look(&of(5)), Err("instances, written out".to_owned()));
    assert_eq!(look(&of(2)), Err(NOTHING.to_owned()));
    let passed =
        "(component $c) (component $d (import \"c\" (component $c)) (instance (instantiate $c)))";
    assert_eq!(
        look(&component(passed)),
        Err("components that are passed to components".to_owned())
    );
    // An alias of a component counts like the component itself.
    let alias = format!(
        "{} (component $e (alias outer 1 $c3 (component $f)) {}) (instance (instantiate $e))",
        multiplied(3),
        "(instance (instantiate $f))".repeat(10)
    );
    assert_eq!(look(&component(&alias)), Err("instances, written out".to_owned()));
}

#[test]
fn declarations_of_modules_are_limited_and_their_code_is_not() {
    let of = |section: u8, bytes: usize| {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        let mut data = leb(u32::try_from(bytes).expect("it is small"));
        data.extend(vec![0; bytes]);
        module.push(section);
        module.extend(leb(u32::try_from(data.len()).expect("it is small")));
        module.extend(data);
        let mut component = Component::new();
        component.section(&RawSection { id: 1, data: &module });
        component.finish()
    };
    assert_eq!(look(&of(3, 5 << 20)), Err("bytes of declarations in its modules".to_owned()));
    let code = format!("(core module (func {}))", "nop ".repeat(5 << 20));
    assert_eq!(look(&component(&code)), Err(NOTHING.to_owned()));
}

/// The refusal of a component that is small enough, and has no export.
const NOTHING: &str =
    "it exports no interface of the contract, and no function that could be a tool";

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
