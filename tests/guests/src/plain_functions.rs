//! Functions of every plain type, without the SDK and without a manifest.

#![allow(
    unsafe_code,
    clippy::too_many_arguments,
    clippy::type_complexity,
    reason = "the bindings are generated, and one function takes a value of every type"
)]

wit_bindgen::generate!({
    inline: r#"
        package acme:math@1.2.0;

        interface calc {
            flags marks { bold, large }
            enum unit { metre, foot }
            variant shape { circle(f64), square(u32), nothing }
            record point { x: s32, y: s32, label: option<string> }
            resource counter { constructor(); next: func() -> u32; }

            add: func(a: u32, b: u32) -> u32;
            divide: func(a: s64, b: s64) -> result<s64, string>;
            echo-all: func(
                text: string, letter: char, small: f32, wide: f64, low: s8, high: u64, yes: bool,
                bytes: list<u8>, pair: tuple<u8, string>, marks: marks, unit: unit, shape: shape,
                points: list<point>, maybe: option<u16>, twice: option<option<bool>>, ended: result<u8, string>,
            ) -> tuple<string, char, f32, f64, s8, u64, bool, list<u8>, tuple<u8, string>, marks, unit, shape, list<point>, option<u16>, option<option<bool>>, result<u8, string>>;
            infinite: func() -> f64;
            spin: func();
            flood: func() -> list<string>;
            take: func(it: borrow<counter>) -> u32;
        }

        interface more { add: func(a: string, b: string) -> string; }

        world plain {
            export calc;
            export more;
            export greet: func(name: string) -> string;
        }
    "#,
});

use exports::acme::math::calc::{self, CounterBorrow, Marks, Point, Shape, Unit};

struct Plain;

struct Counter(std::cell::Cell<u32>);

impl calc::GuestCounter for Counter {
    fn new() -> Self {
        Self(std::cell::Cell::new(0))
    }

    fn next(&self) -> u32 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

impl calc::Guest for Plain {
    type Counter = Counter;

    fn add(a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }

    fn divide(a: i64, b: i64) -> Result<i64, String> {
        a.checked_div(b).ok_or_else(|| format!("{a} cannot be divided by {b}"))
    }

    fn echo_all(
        text: String,
        letter: char,
        small: f32,
        wide: f64,
        low: i8,
        high: u64,
        yes: bool,
        bytes: Vec<u8>,
        pair: (u8, String),
        marks: Marks,
        unit: Unit,
        shape: Shape,
        points: Vec<Point>,
        maybe: Option<u16>,
        twice: Option<Option<bool>>,
        ended: Result<u8, String>,
    ) -> (
        String,
        char,
        f32,
        f64,
        i8,
        u64,
        bool,
        Vec<u8>,
        (u8, String),
        Marks,
        Unit,
        Shape,
        Vec<Point>,
        Option<u16>,
        Option<Option<bool>>,
        Result<u8, String>,
    ) {
        (
            text, letter, small, wide, low, high, yes, bytes, pair, marks, unit, shape, points,
            maybe, twice, ended,
        )
    }

    fn infinite() -> f64 {
        f64::INFINITY
    }

    fn spin() {
        loop {
            std::hint::spin_loop();
        }
    }

    fn flood() -> Vec<String> {
        vec!["x".repeat(1 << 10); 64 << 10]
    }

    fn take(it: CounterBorrow<'_>) -> u32 {
        calc::GuestCounter::next(it.get::<Counter>())
    }
}

impl exports::acme::math::more::Guest for Plain {
    fn add(a: String, b: String) -> String {
        a + &b
    }
}

impl Guest for Plain {
    fn greet(name: String) -> String {
        assert!(!name.is_empty(), "there is no name");
        format!("Hello, {name}")
    }
}

// Natively the names cannot be linked, so there the type is only mentioned.
const _: std::marker::PhantomData<Plain> = std::marker::PhantomData;
#[cfg(target_family = "wasm")]
export!(Plain);
