//! [`TlsTexts`]: the certificates of a configuration, before a client or a driver is made of it.

use redbolt::Config;

use crate::failure::Failure;

#[derive(Clone, Default)]
pub(crate) struct TlsTexts {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) chain: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) server_name: Option<String>,
}

impl TlsTexts {
    /// The configuration with these texts.
    #[cfg(feature = "tls")]
    pub(crate) fn add_to(&self, config: Config) -> Result<Config, Failure> {
        let mut tls = redbolt::Tls::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca(ca.clone());
        }
        tls = match (&self.chain, &self.key) {
            (Some(chain), Some(key)) => tls.identity(chain.clone(), key.clone()),
            (None, None) => tls,
            (Some(_), None) | (None, Some(_)) => {
                let why = "REDBOLT_TLS_CERT and REDBOLT_TLS_KEY belong together";
                return Err(Failure::Argument(why));
            }
        };
        if let Some(name) = &self.server_name {
            tls = tls.server_name(name.clone());
        }
        Ok(config.tls(tls))
    }

    /// Refuses all texts.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn add_to(&self, config: Config) -> Result<Config, Failure> {
        if [&self.ca, &self.chain, &self.key].into_iter().any(Option::is_some)
            || self.server_name.is_some()
        {
            return Err(Failure::Argument(
                "this library was built without TLS: build it with CARGOFLAGS=\"--features tls\"",
            ));
        }
        Ok(config)
    }
}
