//! The code that the benches share. [`probe`] is the floor against which they measure, and
//! [`looped`] is a driver in the smallest loop. [`proxy`] makes nodes slow and faulty, and [`rig`]
//! drives an engine without sockets. [`picture`] draws the README's picture.

#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::exhaustive_enums,
    clippy::new_without_default,
    reason = "for these benches alone: what goes wrong here ends them"
)]

pub mod looped;
pub mod picture;
pub mod probe;
pub mod proxy;
pub mod rig;
