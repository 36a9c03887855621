//! Certificates from an ACME directory (RFC 8555): ordered, validated with tls-alpn-01 (RFC 8737), written to
//! the data folder, and renewed when a third of their lifetime is left.
//!
//! Promises: only the names of the config are ordered and validated. The file contains key and chain, and is
//! replaced atomically; it and the account's key are readable by this user only. No start waits for the
//! directory: without a certificate on disk the server uses a self-signed one.
//!
//! `super::watch` puts a changed file in use.

use super::{certified_key, validity_of};
use crate::condition::State;
use crate::conditions::Notices;
use crate::outgoing;
use crate::start_error::StartError;
use forebay_config::model::{Acme, CertificateFiles};
use forebay_terminal::say;
use http_body_util::BodyExt;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, Error,
    HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use opentelemetry_http::Bytes;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The longest time between two checks of the certificate.
const LOOK_MAX: Duration = Duration::from_secs(3600);
/// The pause after a first failure; four times as long after each further one, at most [`LOOK_MAX`].
/// Directories accept few failed orders an hour.
const PAUSE: Duration = Duration::from_secs(10);
/// The timeout of one request to the directory.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the directory may take to validate the names, and to sign.
const ORDER_TIMEOUT: Duration = Duration::from_secs(120);
/// The most of a directory's answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Certificates that answer a challenge, by name. Only a client that offers the challenge protocol gets one.
#[derive(Debug, Clone, Default)]
pub struct Challenges(Arc<Mutex<HashMap<String, Arc<CertifiedKey>>>>);

impl Challenges {
    pub(super) fn of(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.lock().get(name).cloned()
    }
}

/// The account as stored on disk.
#[derive(Serialize, Deserialize)]
struct AccountFile {
    directory: String,
    credentials: AccountCredentials,
}

/// Writes a self-signed certificate if no usable one exists: until the directory issues one, it lets the
/// directory connect to validate the names.
///
/// # Errors
/// A sentence: the file cannot be written.
pub fn prepare(acme: &Acme) -> Result<(), StartError> {
    if certified_key(&files(acme), &ring::default_provider()).is_ok() {
        return Ok(());
    }
    let made = rcgen::generate_simple_self_signed(acme.names.clone())
        .map_err(|error| format!("server.tls.names: {error}"))?;
    write(&acme.file, &(made.signing_key.serialize_pem() + &made.cert.pem()))
}

fn files(acme: &Acme) -> CertificateFiles {
    CertificateFiles { certificate: acme.file.clone(), key: acme.file.clone() }
}

/// Replaces a file that only this user may read.
fn write(file: &Path, text: &str) -> Result<(), StartError> {
    let folder = file.parent().expect("it is in a folder");
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        // Created with mode 0600.
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut new, text.as_bytes())?;
        new.as_file().sync_all()?;
        new.persist(file).map(drop).map_err(std::io::Error::from)
    });
    written.map_err(|error| format!("server.tls.acme: {} cannot be written: {error}", file.display()).into())
}

/// How long until the certificate on disk must be renewed; zero: now.
fn due_in(acme: &Acme, now: SystemTime) -> Duration {
    let Ok(certified) = certified_key(&files(acme), &ring::default_provider()) else { return Duration::ZERO };
    let is_for = |name: &String| {
        let parsed = certified.end_entity_cert().and_then(ParsedCertificate::try_from);
        let name = ServerName::try_from(name.as_str());
        parsed.is_ok_and(|parsed| name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok()))
    };
    match validity_of(&certified.cert[0]) {
        Ok(validity) if !validity.is_self_signed && acme.names.iter().all(is_for) => {
            let (from, until) = (validity.from.to_system_time(), validity.until.to_system_time());
            let life = until.duration_since(from).unwrap_or_default();
            (until - life / 3).duration_since(now).unwrap_or_default()
        }
        _ => Duration::ZERO,
    }
}

/// Orders certificates when they are due. Never returns.
pub async fn keep(acme: Acme, challenges: Challenges, notices: Notices) {
    let mut pause = PAUSE;
    loop {
        let left = due_in(&acme, SystemTime::now());
        if !left.is_zero() && account_of(&acme).is_some() {
            // Rounded up: a check that comes too early would order nothing.
            tokio::time::sleep(left.min(LOOK_MAX) + Duration::from_millis(1)).await;
            continue;
        }
        match obtain(&acme, &challenges).await {
            Ok(()) => {
                say!("server.tls: {} has signed a certificate for {}", acme.directory, acme.names.join(", "));
                notices.set(State::CertificateDue, None);
                pause = PAUSE;
            }
            Err(error) => {
                let next_s = pause.as_secs();
                let why = format!(
                    "no new certificate for {} from {}: {error}; the next try is {next_s} s later",
                    acme.names.join(", "),
                    acme.directory
                );
                notices.set(State::CertificateDue, Some(why));
                tokio::time::sleep(pause).await;
                pause = (pause * 4).min(LOOK_MAX);
            }
        }
    }
}

fn account_file(acme: &Acme) -> std::path::PathBuf {
    acme.file.with_file_name("account.json")
}

/// The account on disk, if it belongs to this directory; another directory's certificate is replaced.
fn account_of(acme: &Acme) -> Option<AccountCredentials> {
    let text = std::fs::read_to_string(account_file(acme)).ok()?;
    let file: AccountFile = serde_json::from_str(&text).ok()?;
    (file.directory == acme.directory).then_some(file.credentials)
}

async fn open_account(acme: &Acme) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(Client(outgoing::agent(TIMEOUT))));
    if let Some(credentials) = account_of(acme) {
        return builder.from_credentials(credentials).await;
    }
    let new = NewAccount { contact: &[], terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder.create(&new, acme.directory.clone(), None).await?;
    let file = AccountFile { directory: acme.directory.clone(), credentials };
    write(&account_file(acme), &serde_json::to_string(&file)?).map_err(|error| Error::Other(error.into()))?;
    Ok(account)
}

/// One order, from the account to the file.
async fn obtain(acme: &Acme, challenges: &Challenges) -> Result<(), Error> {
    let account = open_account(acme).await?;
    let names: Vec<_> = acme.names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let proved = prove(&mut order, acme, challenges).await;
    challenges.0.lock().clear();
    proved?;
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&RetryPolicy::new().timeout(ORDER_TIMEOUT)).await?;
    judge(&key, &chain).map_err(|what| Error::Other(what.into()))?;
    write(&acme.file, &(key + &chain)).map_err(|error| Error::Other(error.into()))
}

/// Proves to the directory that the names lead to this server.
async fn prove(order: &mut Order, acme: &Acme, challenges: &Challenges) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(Error::Unsupported("tls-alpn-01"));
        };
        let name = challenge.identifier().to_string();
        if !acme.names.contains(&name) {
            return Err(Error::Other(format!("it asks to prove {name}, which was not ordered").into()));
        }
        let answer = answer_for(&name, challenge.key_authorization().digest().as_ref());
        let answer = answer.map_err(|what| Error::Other(what.into()))?;
        challenges.0.lock().insert(name, Arc::new(answer));
        challenge.set_ready().await?;
    }
    match order.poll_ready(&RetryPolicy::new().timeout(ORDER_TIMEOUT)).await? {
        OrderStatus::Ready => Ok(()),
        _ => Err(why_invalid(order).await),
    }
}

/// The directory's error for a name that could not be validated.
async fn why_invalid(order: &mut Order) -> Error {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { break };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Error::Api(problem);
        }
    }
    Error::Other("the names could not be proved".into())
}

/// The certificate that answers a challenge (RFC 8737 section 3).
fn answer_for(name: &str, digest: &[u8]) -> Result<CertifiedKey, StartError> {
    let make = || {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?, key))
    };
    let (certificate, key) = make().map_err(|error: rcgen::Error| error.to_string())?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let key =
        ring::default_provider().key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    // Not `from_der`, which rejects the critical extension that holds the answer.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// Whether key and chain fit together; only then do they replace the file on disk.
fn judge(key: &str, chain: &str) -> Result<(), StartError> {
    let unusable = |error: &dyn std::fmt::Display| format!("what it gave cannot be used: {error}");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(&error))?;
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unusable(&error))?;
    let judged = CertifiedKey::from_der(chain, key, &ring::default_provider());
    judged.map(drop).map_err(|error| unusable(&error).into())
}

/// The HTTP client of the directory.
struct Client(ureq::Agent);

impl HttpClient for Client {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let agent = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(whole) => whole.to_bytes(),
                Err(never) => match never {},
            };
            // The client blocks.
            let asked =
                tokio::task::spawn_blocking(move || ask(&agent, http::Request::from_parts(head, body)));
            let answer = asked.await.map_err(|error| Error::Other(error.into()))?;
            let (parts, body) = answer.map_err(|error| Error::Other(error.into()))?.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

fn ask(agent: &ureq::Agent, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ureq::Error> {
    let (head, body) = request.into_parts();
    // The body of an error answer says what is wrong, so error statuses are not turned into errors.
    let answer = match body.is_empty() {
        true => agent.run(as_told(agent, http::Request::from_parts(head, ())))?,
        false => agent.run(as_told(agent, http::Request::from_parts(head, &*body)))?,
    };
    let (head, mut body) = answer.into_parts();
    let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
    Ok(http::Response::from_parts(head, body.into()))
}

fn as_told<B: ureq::AsSendBody>(agent: &ureq::Agent, request: http::Request<B>) -> http::Request<B> {
    agent.configure_request(request).http_status_as_error(false).build()
}
