//! RESP2 and RESP3: bytes to replies and commands to bytes.
