//! Where a node is and how to log in: one entry of the configured list, parsed.
//!
//! Layer: bottom, plain values. Resolves no names and opens nothing.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use fluent_uri::component::{Host, IAuthority};
use fluent_uri::pct_enc::encoder::IPath;
use fluent_uri::pct_enc::{EStr, Encoder};
use fluent_uri::{Iri, ParseErrorKind};

use crate::error::ConfigError;
use crate::quorum::NODES_MAX;

/// The default port of Redis and Valkey.
const PORT_DEFAULT: u16 = 6379;

const WITHOUT_TLS: &str =
    "this build has no TLS: build redbolt with the feature tls (--features tls)";

const NO_URL: &str = "it is not a URL or host:port; use percent codes for characters that a URL cannot hold, such as %20 for a blank";

const BAD_PASSWORD: &str = "write @ and / in a password as %40 and %2F";

const BAD_PORT: &str = "the port must be 1 to 65535";

const BAD_IPV6: &str = "the IPv6 address is malformed (write [::1]:6379)";

/// A node's place on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A host name or IP address (IPv6 without brackets) and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port, never zero.
        port: u16,
    },
    /// The path of a unix domain socket.
    Unix(PathBuf),
}

/// One node of a [`Config`](crate::Config): its endpoint, and the login that its URL gives.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    endpoint: Endpoint,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    database: u32,
    name: String,
    pub(crate) encryption: Encryption,
}

/// How an address asks for encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// `redis://`, or a unix socket.
    Plain,
    /// `rediss://`
    Tls,
    /// No scheme: the configuration decides.
    Open,
}

impl Address {
    /// Parses `redis://[user[:password]@]host[:port][/database]`, `rediss://` for the same through
    /// TLS (feature `tls`), `unix://[user[:password]@]/path[?db=database]`, or a bare `host:port`.
    /// `valkey://` and `valkeys://` mean the same as the first two. For a character that a URL
    /// cannot hold, write its percent code, such as `%20`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Address`] with the part that is wrong; the message never holds the login.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let wrong = |why: &'static str| ConfigError::Address { address: without_login(text), why };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        if text.contains(|c: char| c.is_control()) {
            return Err(wrong("it holds control characters"));
        }
        let bare;
        let (url_text, has_scheme) = if text.contains("://") {
            (text, true)
        } else {
            bare = format!("redis://{text}");
            (bare.as_str(), false)
        };
        let url = Iri::parse(url_text).map_err(|error| wrong(url_fault(url_text, error.kind())))?;
        let authority = url.authority().ok_or_else(|| wrong(NO_URL))?;
        let (is_unix, encryption) = match url.scheme().as_str().to_ascii_lowercase().as_str() {
            "rediss" | "valkeys" if !cfg!(feature = "tls") => return Err(wrong(WITHOUT_TLS)),
            "rediss" | "valkeys" => (false, Encryption::Tls),
            "redis" | "valkey" if !has_scheme => (false, Encryption::Open),
            "redis" | "valkey" => (false, Encryption::Plain),
            "unix" | "redis+unix" => (true, Encryption::Plain),
            _ => return Err(wrong("the scheme must be redis://, rediss:// or unix://")),
        };
        if url.has_fragment() || !is_unix && url.has_query() {
            return Err(wrong("nothing may follow host:port/database, neither ? nor #"));
        }
        let (endpoint, database) = if is_unix {
            let number = match url.query().map(|query| query.as_str().strip_prefix("db=")) {
                Some(None) => return Err(wrong("only ?db=NUMBER may follow the path")),
                number => number.flatten().unwrap_or_default(),
            };
            (unix_endpoint(authority, url.path()), number)
        } else {
            (tcp_endpoint(authority), url.path().as_str().trim_start_matches('/'))
        };
        let endpoint = endpoint.map_err(wrong)?;
        let name = match &endpoint {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(path) => path.display().to_string(),
        };
        let login = authority.userinfo().unwrap_or_default();
        let (username, password) = login.split_once(':').unwrap_or((login, EStr::EMPTY));
        let decoded = |part: &EStr<_>| {
            if part.is_empty() { Ok(None) } else { percent_decoded(part).map(Some) }
        };
        Ok(Self {
            endpoint,
            username: decoded(username).map_err(wrong)?,
            password: decoded(password).map_err(wrong)?,
            database: database_number(database).map_err(wrong)?,
            name,
            encryption,
        })
    }

    /// Where the node is.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The number of the database for the locks: 0, unless the URL names another.
    #[must_use]
    pub const fn database(&self) -> u32 {
        self.database
    }

    /// Whether the address names a user or a password.
    #[must_use]
    pub const fn has_login(&self) -> bool {
        self.username.is_some() || self.password.is_some()
    }

    /// The node's name in messages: `host:port` or the path, never the login.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("endpoint", &self.endpoint)
            .field("database", &self.database)
            .field("encryption", &self.encryption)
            .finish_non_exhaustive()
    }
}

fn tcp_endpoint(authority: IAuthority<'_>) -> Result<Endpoint, &'static str> {
    let host = match authority.host_parsed() {
        Host::Ipv4(ip) => ip.to_string(),
        Host::Ipv6(ip) => ip.to_string(),
        Host::RegName(name) => host_name(percent_decoded(name)?)?,
        Host::IpvFuture { .. } => return Err(BAD_IPV6),
    };
    match authority.port_to_u16() {
        Ok(Some(0)) | Err(_) => Err(BAD_PORT),
        Ok(port) => Ok(Endpoint::Tcp { host, port: port.unwrap_or(PORT_DEFAULT) }),
    }
}

fn host_name(name: String) -> Result<String, &'static str> {
    let is_delimiter = |c: char| "/@:?#[]\\%".contains(c) || c.is_control() || c.is_whitespace();
    if name.is_empty() {
        return Err("the host is missing");
    }
    if name.contains(is_delimiter) {
        return Err("the host holds a percent code for a character that no host has");
    }
    Ok(name)
}

fn unix_endpoint(authority: IAuthority<'_>, path: &EStr<IPath>) -> Result<Endpoint, &'static str> {
    if !authority.host().is_empty() || authority.has_port() {
        return Err("a unix socket is unix:///path, with three slashes");
    }
    let path = percent_decoded(path)?;
    // sun_path holds 108 bytes with its closing NUL on Linux, 104 on macOS.
    let limit = if cfg!(target_os = "linux") { 107 } else { 103 };
    if path.is_empty() || path == "/" {
        return Err("the path of the socket is missing");
    }
    if path.len() > limit || path.contains('\0') {
        return Err("the path is too long for a unix socket, or holds a NUL");
    }
    Ok(Endpoint::Unix(path.into()))
}

fn database_number(number: &str) -> Result<u32, &'static str> {
    if number.is_empty() {
        return Ok(0);
    }
    let number = number.parse::<u32>().ok().filter(|&number| i32::try_from(number).is_ok());
    number.ok_or("the database must be a whole number")
}

/// The parser's error, without any text of the URL.
fn url_fault(url: &str, error: ParseErrorKind) -> &'static str {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let logins = rest.matches('@').count();
    let is_cut = logins > 1 || logins == 1 && !authority.contains('@');
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    match error {
        ParseErrorKind::InvalidPctEncodedOctet => {
            "a percent sign must be followed by two hexadecimal digits"
        }
        ParseErrorKind::InvalidIpv6Addr => BAD_IPV6,
        ParseErrorKind::UnexpectedChar if is_cut && !authority.is_empty() => BAD_PASSWORD,
        ParseErrorKind::UnexpectedChar
            if host.starts_with('[') || host.matches(':').count() > 1 =>
        {
            BAD_IPV6
        }
        ParseErrorKind::UnexpectedChar if port.contains(|c: char| !c.is_ascii_digit()) => BAD_PORT,
        ParseErrorKind::UnexpectedChar => NO_URL,
    }
}

/// `text` for messages, without its login, and without what may be half of a password.
fn without_login(text: &str) -> String {
    let (login, place) = text.rsplit_once('@').unwrap_or(("", text));
    let place = place.split_once('?').map_or(place, |(place, _)| place);
    // If a password holds a comma, a list of nodes is cut there: this text may end with half the
    // password.
    let is_port = |text: &str| {
        let number = text.split('/').next().unwrap_or_default();
        number.ends_with(']') || number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let place = match place.rsplit_once(':') {
        Some((host, port)) if login.is_empty() && !place.contains(":///") && !is_port(port) => {
            &format!("{host}:***")
        }
        _ => place,
    };
    let place: String = place.chars().take(80).collect();
    // A password may hold anything, even `://`; a scheme holds only letters.
    let scheme = login.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    if scheme.is_empty() || !scheme.bytes().all(is_scheme) {
        place
    } else {
        format!("{scheme}://{place}")
    }
}

fn percent_decoded<E: Encoder>(text: &EStr<E>) -> Result<String, &'static str> {
    text.decode().to_string().map(Cow::into_owned).map_err(|_| "a percent code is not UTF-8")
}

/// The nodes of a list.
pub(crate) fn parse_list(
    nodes: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<Address>, ConfigError> {
    let nodes = nodes.into_iter().map(|node| Address::parse(node.as_ref()));
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        return Err(ConfigError::NoNodes);
    }
    if nodes.len() > NODES_MAX {
        return Err(ConfigError::TooManyNodes { nodes: nodes.len() });
    }
    for (index, node) in nodes.iter().enumerate() {
        if nodes.iter().take(index).any(|other| other.endpoint() == node.endpoint()) {
            return Err(ConfigError::DuplicateNode { node: node.name().into() });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn each_form_of_address_is_understood() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        let table = [
            ("redis://10.0.0.1:7001", tcp("10.0.0.1", 7001), 0, "10.0.0.1:7001"),
            ("redis://locks.example", tcp("locks.example", 6379), 0, "locks.example:6379"),
            ("redis://u:p@h:1/3", tcp("h", 1), 3, "h:1"),
            ("valkey://h:1/", tcp("h", 1), 0, "h:1"),
            ("10.0.0.3:6379", tcp("10.0.0.3", 6379), 0, "10.0.0.3:6379"),
            ("localhost", tcp("localhost", 6379), 0, "localhost:6379"),
            ("[::1]:7001", tcp("::1", 7001), 0, "[::1]:7001"),
            ("redis://[::1]/2", tcp("::1", 6379), 2, "[::1]:6379"),
            ("unix:///run/r/2.sock", Endpoint::Unix("/run/r/2.sock".into()), 0, "/run/r/2.sock"),
            ("unix:///r.sock?db=5", Endpoint::Unix("/r.sock".into()), 5, "/r.sock"),
        ];
        for (text, endpoint, database, name) in table {
            let address = parse(text);
            assert_eq!(address.endpoint(), &endpoint, "{text}");
            assert_eq!(address.database(), database, "{text}");
            assert_eq!(address.name(), name, "{text}");
        }
    }

    #[test]
    fn a_login_is_decoded_and_never_printed() {
        let address = parse("redis://al%20ice:s%3Acret%40@h:1");
        assert_eq!(address.username.as_deref(), Some("al ice"));
        assert_eq!(address.password.as_deref(), Some("s:cret@"));
        assert!(!format!("{address:?} {}", address.name()).contains("cret"));
        assert_eq!(parse("redis://:pw@h").password.as_deref(), Some("pw"));
        assert_eq!(parse("redis://:pw@h").username, None);

        let address = parse("unix://al%20ice:s%3Acr%2Fet%40@/run/r.sock?db=2");
        assert_eq!(address.endpoint(), &Endpoint::Unix("/run/r.sock".into()));
        assert_eq!(address.username.as_deref(), Some("al ice"));
        assert_eq!(address.password.as_deref(), Some("s:cr/et@"));
        assert_eq!((address.database(), address.name()), (2, "/run/r.sock"));
        assert_eq!(parse("unix://:pw@/r").password.as_deref(), Some("pw"));
        assert_eq!(parse("unix://:p:w@/r@s").password.as_deref(), Some("p:w"));
        assert_eq!(parse("unix://:pw@/r").username, None);
        assert_eq!(parse("unix://@/r").password, None);
        assert_eq!(parse("redis+unix://u@/r").username.as_deref(), Some("u"));

        // A comma in a password cuts a list there.
        for text in ["redis://u:s3cret@h:99999", "redis://u:s3cret", "redis://h:1?password=s3cret"]
        {
            let error = Address::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_address_says_whether_its_connection_is_encrypted() {
        let encryption = |text| parse(text).encryption;
        for text in ["redis://h:1", "valkey://h", "unix:///s", "redis+unix:///s"] {
            assert_eq!(encryption(text), Encryption::Plain, "{text}");
        }
        for text in ["h:1", "h", "[::1]:7", "u:p@h:1"] {
            assert_eq!(encryption(text), Encryption::Open, "{text}");
        }
        for text in ["rediss://u:p@[::1]:7001/3", "valkeys://u:p@[::1]:7001/3"] {
            let secure = Address::parse(text);
            if cfg!(feature = "tls") {
                let secure = secure.unwrap();
                assert_eq!(secure.encryption, Encryption::Tls);
                assert_eq!(secure.endpoint(), &Endpoint::Tcp { host: "::1".into(), port: 7001 });
                assert_eq!((secure.database(), secure.name()), (3, "[::1]:7001"));
                assert_eq!(secure.password.as_deref(), Some("p"));
            } else {
                let message = secure.unwrap_err().to_string();
                assert!(message.contains("no TLS") && message.contains("--features"), "{message}");
                assert!(!message.contains("u:p"), "{message}");
            }
        }
    }

    #[test]
    fn a_malformed_address_is_refused_with_what_is_wrong() {
        let table = [
            ("", "empty"),
            ("redis://", "host"),
            ("redis://h:0", "port"),
            ("redis://h:70000", "port"),
            ("http://h:1", "scheme"),
            ("redis://h:1/x", "database"),
            ("redisss://h:1", "scheme"),
            ("redis://h:1/0?x=1", "follow"),
            ("unix://run/r.sock", "three slashes"),
            ("unix:///", "path"),
            ("redis://[::1:7001", "IPv6"),
            ("redis://:a@b@h", "%40 and %2F"),
            ("redis://u:a/b@h:1", "%40 and %2F"),
            ("redis://u:p@h:port", "port must be"),
            ("::1", "write [::1]:6379"),
            ("redis://fe80::1/2", "write [::1]:6379"),
            ("redis://:a^[@h", "use percent codes"),
            ("unix:///a b", "use percent codes"),
            ("unix:///a#b", "follow"),
            ("unix:///a?x", "?db=NUMBER"),
            ("redis://u:%zz@h", "percent"),
            ("unix://u:%zz@/r", "percent"),
            ("unix://u:p@h/r", "three slashes"),
            ("redis://a%2fb:1", "percent code"),
            ("redis://u%40h%40evil", "percent code"),
            ("redis://h%3a7001", "percent code"),
            ("redis://h%00:1", "percent code"),
            ("unix:/a://b:c@", "not a URL"),
            ("redis://h\r\n:1", "control"),
        ];
        for (text, part) in table {
            let message = Address::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
        assert!(Address::parse(&format!("unix:///{}", "x".repeat(108))).is_err());
    }
}
