//! The cause of a failed session, in the node or in this client.

use std::io;

use rustls::{AlertDescription as Alert, CertificateError as Bad, Error, InvalidMessage};

use crate::error::Cause;

/// A session's error as an error of the socket.
pub(super) fn failed(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// As `failed`, after the handshake: the peer does speak TLS.
pub(super) fn broken(error: Error) -> io::Error {
    if matches!(error, Error::InvalidMessage(_)) {
        return failed(Error::General("broken records".into()));
    }
    failed(error)
}

/// The cause of an error of the socket, if a session made it.
pub(in crate::driver) fn cause_of(error: &io::Error) -> Option<Cause> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
    Some(match error {
        Error::InvalidCertificate(bad) => cause_of_certificate(bad),
        // Bytes that are not a TLS record come from a server without TLS.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => Cause::NoTls,
        Error::AlertReceived(alert) => cause_of_alert(*alert),
        _ => Cause::TlsFailed,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
const fn cause_of_certificate(bad: &Bad) -> Cause {
    match bad {
        Bad::Expired
        | Bad::ExpiredContext { .. }
        | Bad::NotValidYet
        | Bad::NotValidYetContext { .. } => Cause::CertificateExpired,
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Cause::CertificateName,
        _ => Cause::CertificateUntrusted,
    }
}

/// A server's alert about a certificate or a signature means the one that this client has sent.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
const fn cause_of_alert(alert: Alert) -> Cause {
    match alert {
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::DecryptError
        | Alert::AccessDenied => Cause::ClientCertificate,
        _ => Cause::TlsFailed,
    }
}
