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
use super::{KeyDir, KeyError};
use crate::identity::Identity;

/// What a party needs to call and to be called. It follows the list of revoked certificates
/// ([`Tls::look`]).
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

/// The own certificate and key, and whom to trust.
#[derive(Debug)]
struct Own {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// What holds while the list stays as it is.
#[derive(Debug)]
struct Current {
    rules: Arc<Rules>,
    /// How often there was another list.
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
    /// With the certificate and the key of a party.
    ///
    /// # Errors
    /// A file is missing or has something else in it; or the certificate is revoked.
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
            let what = format!("it is not the certificate of {party}");
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
        // Before the list is read: one that is written meanwhile is read again.
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

    /// Whose certificate it is.
    #[must_use]
    pub fn party(&self) -> &Identity {
        &self.party
    }

    /// Looks whether there is another list of revoked certificates, at most twice a second, and
    /// follows it. Returns how often there was one: who has checked others by `is_good`
    /// checks them again when that has grown. A list that has gone holds on.
    ///
    /// # Errors
    /// The new list cannot be read, or is not of this authority; then the old one holds. The same
    /// list gives one error.
    pub fn look(&self) -> Result<u64, KeyError> {
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

    /// Whether a certificate that another has shown is still valid and not revoked.
    #[must_use]
    pub fn is_good(&self, certificate: &CertificateDer<'_>) -> bool {
        self.rules().verify(certificate).is_ok()
    }

    /// The configuration of a server, for those who call.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.rules().server)
    }

    /// A connection to a party, which no other can answer.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub(crate) fn call(&self, callee: &Identity) -> Result<ClientConnection, rustls::Error> {
        let name = ServerName::try_from(callee.domain());
        let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
        ClientConnection::new(Arc::clone(&self.rules().client), name)
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.lock().rules)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Every critical section leaves it whole.
        let current = &self.shared.current;
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    /// What holds with the list of revoked certificates that is there now. `path` is named in
    /// errors.
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
        // A session that is resumed shows no certificate again, which may have expired.
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
        // A list with another signature would have every certificate refused.
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
                let what = format!("it is not a list of this authority: {error}");
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

/// The party of a certificate that was verified, if it names exactly one.
#[must_use]
pub fn party_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let (name, further) = (names.next()?, names.next());
    let party = Identity::from_domain(name).ok()?;
    further.is_none().then_some(party)
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let text = super::read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| content(path, error))?;
    if all.is_empty() {
        Err(content(path, "it has no certificate"))
    } else {
        Ok(all)
    }
}

fn content(path: &Path, what: impl ToString) -> KeyError {
    KeyError::Content {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

static VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Between two looks at the list of revoked certificates, at least.
const LOOK: Duration = Duration::from_millis(500);
