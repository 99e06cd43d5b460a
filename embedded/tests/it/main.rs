//! The nodes beside real servers, byte for byte, and the features that only they have.

mod conditions;
mod differential;
mod info;
mod nodes;
mod pair;
mod scripts;
mod transfer;
