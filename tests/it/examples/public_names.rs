//! Prints every public item of a library with its signature, a line each: of the file that
//! `cargo rustdoc -- --output-format json` wrote.

#![expect(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;

use public_api::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: public_names FILE")?;
    let library = Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    for item in library.items() {
        println!("{item}");
    }
    Ok(())
}
