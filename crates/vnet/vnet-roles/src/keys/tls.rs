//! TLS 1.3 (RFC 8446) in which both sides show a certificate of the same authority.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use webpki::EndEntityCert;

use super::revocation::Stamp;
use super::{KeyDir, KeyError, certificates, content};
use crate::identity::Identity;

/// What a party needs for calling and being called. It follows changes of the revocation list
/// ([`Tls::reload_if_changed`]).
#[derive(Clone, Debug)]
pub struct Tls {
    party: Identity,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    keys: KeyDir,
    own: Own,
    current: Mutex<Current>,
}

/// The party's own certificate and key, and the authority that it trusts.
#[derive(Debug)]
struct Own {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// What is valid until the revocation list changes.
#[derive(Debug)]
struct Current {
    rules: Arc<Rules>,
    /// Number of changes of the revocation list that this process has read.
    lists: u64,
    stamp: Option<Stamp>,
    looked_at: Instant,
}

#[derive(Debug)]
struct Rules {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// Loads the certificate and key of a party.
    ///
    /// # Errors
    /// A file is missing or invalid, or the certificate is revoked.
    pub fn of(keys: &KeyDir, party: &Identity) -> Result<Tls, KeyError> {
        let mut roots = RootCertStore::empty();
        let path = keys.authority();
        for certificate in certificates(&path)? {
            let added = roots.add(certificate);
            added.map_err(|error| content(&path, error))?;
        }
        let path = keys.certificate(party);
        let chain = certificates(&path)?;
        let shown = chain.first().map(party_of);
        if shown
            .as_ref()
            .is_none_or(|shown| shown.as_ref() != Some(party))
        {
            let what = format!("the certificate is not that of {party}");
            return Err(KeyError::Content { path, what });
        }
        let key_path = keys.key(party);
        let text = super::read(&key_path)?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
        let own = Own {
            roots: Arc::new(roots),
            chain,
            key: key.map_err(|error| content(&key_path, error))?,
        };
        // Identified before it is read: a list that is replaced meanwhile is read again.
        let stamp = keys.stamp();
        let rules = own.rules(keys, &path)?;
        if is_revoked(&rules.verify(&own.chain[0])) {
            return Err(KeyError::Revoked(path));
        }
        let current = Current {
            rules: Arc::new(rules),
            lists: 0,
            stamp,
            looked_at: Instant::now(),
        };
        Ok(Tls {
            party: party.clone(),
            shared: Arc::new(Shared {
                keys: keys.clone(),
                own,
                current: Mutex::new(current),
            }),
        })
    }

    /// The party whose certificate this is.
    #[must_use]
    pub fn party(&self) -> &Identity {
        &self.party
    }

    /// Checks, at most twice a second, whether the revocation list has changed, and loads the new
    /// one. Returns how often the list has changed: when that number has grown, callers must check
    /// the certificates of their peers again with `is_good`. If the file is removed, the last list
    /// stays in effect.
    ///
    /// # Errors
    /// The new list cannot be read, or is not of this authority; then the previous one stays in
    /// effect. The error is reported once per list.
    pub fn reload_if_changed(&self) -> Result<u64, KeyError> {
        let mut current = self.lock();
        if current.looked_at.elapsed() < LOOK {
            return Ok(current.lists);
        }
        current.looked_at = Instant::now();
        let keys = &self.shared.keys;
        let stamp = keys.stamp();
        if stamp.is_none() || stamp == current.stamp {
            return Ok(current.lists);
        }
        current.stamp = stamp;
        let rules = self.shared.own.rules(keys, &keys.list())?;
        current.rules = Arc::new(rules);
        current.lists += 1;
        Ok(current.lists)
    }

    /// Whether a peer's certificate is still valid and not revoked.
    #[must_use]
    pub fn is_good(&self, certificate: &CertificateDer<'_>) -> bool {
        self.rules().verify(certificate).is_ok()
    }

    /// The TLS configuration for accepting calls.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.rules().server)
    }

    /// A TLS connection for calling a party; only that party can complete the handshake.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(crate) fn call(&self, callee: &Identity) -> Result<ClientConnection, rustls::Error> {
        let name = ServerName::try_from(callee.domain());
        let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
        ClientConnection::new(Arc::clone(&self.rules().client), name)
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.lock().rules)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Every critical section leaves the value consistent, even after a panic.
        let current = &self.shared.current;
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    /// Builds what is valid with the current revocation list. Errors name `path`.
    fn rules(&self, keys: &KeyDir, path: &Path) -> Result<Rules, KeyError> {
        let list = keys.read_list()?;
        let has_list = list.is_some();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (roots, lists) = (&self.roots, || list.clone());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider))
                .with_crls(lists())
                .only_check_end_entity_revocation()
                .build();
        let verifier = verifier.map_err(|error| content(path, error))?;
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider))
                .with_crls(lists())
                .only_check_end_entity_revocation()
                .build();
        let servers = servers.map_err(|error| content(path, error))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .map_err(|error| content(path, error))?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| content(path, error))?;
        // A resumed session would not show the certificate again, which may have expired.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .map_err(|error| content(path, error))?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| content(path, error))?;
        client.resumption = Resumption::disabled();
        let rules = Rules {
            server: Arc::new(server),
            client: Arc::new(client),
            verifier,
        };
        // A list signed by another authority would make TLS refuse every certificate.
        if has_list && let Err(error) = rules.verify(&self.chain[0]) {
            use rustls::CertificateError::{
                Expired, ExpiredContext, NotValidYet, NotValidYetContext, Revoked,
            };
            let is_of_certificate = matches!(
                &error,
                rustls::Error::InvalidCertificate(
                    Revoked
                        | Expired
                        | ExpiredContext { .. }
                        | NotValidYet
                        | NotValidYetContext { .. }
                )
            );
            if !is_of_certificate {
                let what = format!("the list is not signed by this authority: {error}");
                return Err(content(&keys.list(), what));
            }
        }
        Ok(rules)
    }
}

impl Rules {
    fn verify(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let verified = self
            .verifier
            .verify_client_cert(certificate, &[], UnixTime::now());
        verified.map(drop)
    }
}

fn is_revoked(verified: &Result<(), rustls::Error>) -> bool {
    let revoked = rustls::CertificateError::Revoked;
    matches!(verified, Err(rustls::Error::InvalidCertificate(it)) if *it == revoked)
}

/// The party that a verified certificate names; `None` if it does not name exactly one.
#[must_use]
pub fn party_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let (name, further) = (names.next()?, names.next());
    let party = Identity::from_domain(name).ok()?;
    further.is_none().then_some(party)
}

static VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Least time between two checks of the revocation list.
const LOOK: Duration = Duration::from_millis(500);
