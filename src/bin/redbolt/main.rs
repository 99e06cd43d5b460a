//! The `redbolt` command.

fn main() {}
