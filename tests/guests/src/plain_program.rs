//! A program of the standard library, without the SDK and without a manifest: it does what its
//! first argument says.

use std::io::Read as _;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match what.as_str() {
        "upper" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).expect("standard input is text");
            print!("{}", text.to_uppercase());
        }
        "cat" => match std::fs::read_to_string(&rest[0]) {
            Ok(text) => print!("{text}"),
            Err(error) => {
                eprintln!("{}: {error}", rest[0]);
                std::process::exit(2);
            }
        },
        "connect" => println!("{:?}", std::net::TcpStream::connect("127.0.0.1:1").map(drop)),
        "env" => println!("{:?} {rest:?}", std::env::vars().collect::<Vec<_>>()),
        "yes" => loop {
            println!("{}", "y".repeat(1_000));
        },
        "much" => (0..20_000).for_each(|number| println!("line {number} of the output")),
        "panic" => panic!("lost the plot"),
        other => {
            println!("there is no {other:?}");
            std::process::exit(1);
        }
    }
}
