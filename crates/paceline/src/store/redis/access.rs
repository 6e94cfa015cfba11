//! How to get in: TLS, user, password, database. The same for all servers of a store, another for
//! its sentinels. Holds secrets and prints none.

use std::fmt;
use std::path::Path;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use super::address::Address;
use super::url::{Login, RedisUrl, Tls};
use crate::error::Error;

/// What opens the servers' door.
#[derive(Clone)]
pub(super) struct Access {
    tls: Option<Certificates>,
    settings: RedisConnectionInfo,
}

/// What the files hold.
#[derive(Clone)]
struct Certificates {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "refused before it is used"))]
    ca: Option<Vec<u8>>,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "refused before it is used"))]
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Access {
    /// To the servers of a store.
    pub(super) fn to_servers(url: &RedisUrl) -> Result<Self, Error> {
        Self::new(url.tls.as_ref(), &url.login, url.db)
    }

    /// To the sentinels that a store's servers are found by.
    pub(super) fn to_sentinels(url: &RedisUrl, login: &Login) -> Result<Self, Error> {
        Self::new(url.tls.as_ref(), login, 0)
    }

    fn new(tls: Option<&Tls>, login: &Login, db: i64) -> Result<Self, Error> {
        if tls.is_some() && !cfg!(feature = "tls") {
            return Err(Error::input("rediss…: built without TLS (the feature `tls`)".to_owned()));
        }
        let mut settings = RedisConnectionInfo::default().set_db(db).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        Ok(Self { tls: tls.map(Certificates::read).transpose()?, settings })
    }

    /// A client of one server; it connects when asked to.
    pub(super) fn client(&self, address: &Address) -> Result<Client, Error> {
        let Address { host, port } = address.clone();
        let addr = match &self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let cannot = |error: redis::RedisError| Error::input(format!("{address}: {error}"));
        let info = addr.into_connection_info().map_err(cannot)?;
        let info = info
            .set_redis_settings(self.settings.clone())
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            #[cfg(feature = "tls")]
            Some(certificates) => certificates.client(info).map_err(cannot),
            _ => Client::open(info).map_err(cannot),
        }
    }
}

impl Certificates {
    fn read(tls: &Tls) -> Result<Self, Error> {
        let file = |parameter: &str, path: &Path| {
            std::fs::read(path)
                .map_err(|error| Error::input(format!("{parameter}={}: {error}", path.display())))
        };
        let ca = tls.ca.as_deref().map(|path| file("ca", path)).transpose()?;
        let client = match &tls.client {
            Some((cert, key)) => Some((file("cert", cert)?, file("key", key)?)),
            None => None,
        };
        Ok(Self { ca, client })
    }

    /// Without files the system's authorities are trusted (or those of `SSL_CERT_FILE`), read anew
    /// for each connection. The process's cryptography is the program's choice; where it made none
    /// it is ring's.
    #[cfg(feature = "tls")]
    fn client(&self, info: redis::ConnectionInfo) -> redis::RedisResult<Client> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error says that another thread was quicker.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        if self.ca.is_none() && self.client.is_none() {
            return Client::open(info);
        }
        let client_tls = self
            .client
            .clone()
            .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        let certificates = redis::TlsCertificates { client_tls, root_cert: self.ca.clone() };
        Client::build_with_tls(info, certificates)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "Access(TLS)" } else { "Access" })
    }
}
