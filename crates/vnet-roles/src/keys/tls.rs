//! TLS 1.3 (RFC 8446) in which both sides show a certificate of the same authority.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use webpki::EndEntityCert;

use super::{KeyDir, KeyError};
use crate::identity::Identity;

/// What a party needs to call and to be called.
#[derive(Clone, Debug)]
pub struct Tls {
    party: Identity,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    /// With the certificate and the key of a party.
    ///
    /// # Errors
    /// A file is missing or has something else in it.
    pub fn of(keys: &KeyDir, party: &Identity) -> Result<Tls, KeyError> {
        let mut roots = RootCertStore::empty();
        let path = keys.authority();
        for certificate in certificates(&path)? {
            let added = roots.add(certificate);
            added.map_err(|error| content(&path, error))?;
        }
        let roots = Arc::new(roots);
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
        let key = || {
            let text = super::read(&key_path)?;
            let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
            key.map_err(|error| content(&key_path, error))
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| content(&path, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .map_err(|error| content(&path, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key()?)
            .map_err(|error| content(&path, error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .map_err(|error| content(&path, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key()?)
            .map_err(|error| content(&path, error))?;
        Ok(Tls {
            party: party.clone(),
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// Whose certificate it is.
    #[must_use]
    pub fn party(&self) -> &Identity {
        &self.party
    }

    /// For those who call.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// A connection to a party, which no other can answer.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub(crate) fn call(&self, callee: &Identity) -> Result<ClientConnection, rustls::Error> {
        let name = ServerName::try_from(callee.domain());
        let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
        ClientConnection::new(Arc::clone(&self.client), name)
    }
}

/// The party of a certificate that was verified, if it names exactly one.
pub(crate) fn party_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let (name, further) = (names.next()?, names.next());
    let party = Identity::from_domain(name).ok()?;
    further.is_none().then_some(party)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let text = super::read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| content(path, error))?;
    match all.is_empty() {
        true => Err(content(path, "it has no certificate")),
        false => Ok(all),
    }
}

fn content(path: &Path, what: impl ToString) -> KeyError {
    KeyError::Content {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

static VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
