//! The nodes beside real servers, byte for byte, and what only they can do.

mod conditions;
mod differential;
mod info;
mod nodes;
mod pair;
mod scripts;
mod transfer;
