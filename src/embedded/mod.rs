//! In-process nodes.
