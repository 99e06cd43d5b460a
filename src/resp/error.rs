//! [`ProtocolError`]: why bytes are not RESP, or exceed the limits.
//!
//! Layer: bottom, inside `resp`.
//!
//! # Contract
//!
//! - Small and `Copy`. It holds no received byte except an unknown type byte, so any log may show
//!   it.
//!
//! # Invariants
//!
//! - One line, lower case (`errors_are_one_lower_case_line`).

/// Why a connection cannot be read any further. Close it: the pending requests on it are unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// A reply began with a byte that names no type. The peer is probably not Redis or Valkey.
    #[error("unknown reply type byte 0x{0:02x}")]
    UnknownType(u8),
    /// A line or a bulk string did not end in CR LF.
    #[error("reply is not terminated by CR LF")]
    Terminator,
    /// A text or number line went on past its cap.
    #[error("reply line too long")]
    LineTooLong,
    /// The frame is, or by its declared sizes must become, longer than
    /// [`frame_len_max`](super::Limits::frame_len_max).
    #[error("reply larger than the size cap")]
    FrameTooLong,
    /// Aggregates were nested deeper than [`depth_max`](super::Limits::depth_max).
    #[error("reply nested too deep")]
    TooDeep,
    /// An integer was empty, not a number, or does not fit 64 bits.
    #[error("malformed integer in reply")]
    Integer,
    /// A length or count was neither canonical digits nor a legal `-1`.
    #[error("malformed length in reply")]
    Length,
    /// A length was `?`: no server sends streamed replies, and the decoder accepts none.
    #[error("streamed reply, which is not supported")]
    Streamed,
    /// A null had content.
    #[error("malformed null in reply")]
    Null,
    /// A boolean was neither `t` nor `f`.
    #[error("malformed boolean in reply")]
    Boolean,
    /// A double or a big number was empty, or held a byte that is in no number.
    #[error("malformed number in reply")]
    Number,
    /// A verbatim string lacked its three-byte format and colon.
    #[error("malformed verbatim string in reply")]
    Verbatim,
    /// A push had no element, so it does not name its kind.
    #[error("empty push message")]
    EmptyPush,
    /// A push stood inside another reply; it may stand only between replies.
    #[error("push message inside a reply")]
    NestedPush,
}
