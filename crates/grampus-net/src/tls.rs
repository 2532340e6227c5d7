//! TLS with an authority that every holder of the job key can derive.
//!
//! The authority's private key is an Ed25519 seed that comes out of the job key, and all else in its certificate is
//! fixed, so that all members hold the same authority without ever exchanging it, and each issues its own certificate.
//! Certificates name the member and the job, not an address, and are valid at any time: clocks of hosts differ, and a
//! key lives no longer than its job.

use std::io;
use std::sync::Arc;

use grampus_core::{JobId, JobKey};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, SerialNumber,
};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::stream::closed;
use crate::{NetError, Security, secret};

/// The start of an Ed25519 private key in PKCS #8; the 32 bytes of the seed follow.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

/// The authority of a job.
pub(crate) struct Authority {
    pub certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn derive(key: &JobKey) -> Result<Self, NetError> {
        let seed = secret::derive(key, "grampus ca v1")?;
        let pkcs8 = PrivatePkcs8KeyDer::from([&PKCS8[..], &seed].concat());
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &PKCS_ED25519).map_err(internal)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("grampus job authority");
        params.serial_number = Some(SerialNumber::from(1));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&pair).map_err(internal)?.der().clone();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, pair),
        })
    }

    fn issue(
        &self,
        job: JobId,
        name: &str,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), NetError> {
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(internal)?;
        let mut params = CertificateParams::new([full_name(job, name)]).map_err(internal)?;
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params
            .signed_by(&pair, &self.issuer)
            .map_err(internal)?
            .der()
            .clone();
        Ok((certificate, PrivatePkcs8KeyDer::from(pair.serialize_der()).into()))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, NetError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(internal)?;
        Ok(Arc::new(roots))
    }
}

/// `worker-3` in job 7 is `worker-3.0000000000000007.grampus`.
pub(crate) fn full_name(job: JobId, name: &str) -> String {
    format!("{name}.{job}.grampus")
}

pub(crate) fn server_name(job: JobId, name: &str) -> Result<ServerName<'static>, NetError> {
    ServerName::try_from(full_name(job, name)).map_err(|_| NetError::BadName(name.to_owned()))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// AES-128 where the processor has instructions for it, else ChaCha20, which is faster there; so that two peers agree on
/// ChaCha20 where one of them has none. Nothing else is offered: wires know only these two.
fn provider() -> Arc<CryptoProvider> {
    let mut cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    if has_aes() {
        cipher_suites.insert(0, cipher_suite::TLS13_AES_128_GCM_SHA256);
    }
    Arc::new(CryptoProvider {
        cipher_suites,
        ..rustls::crypto::ring::default_provider()
    })
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// For a listener called `name`.
pub(crate) fn server_config(job: JobId, key: &JobKey, name: &str) -> Result<Arc<ServerConfig>, NetError> {
    let authority = Authority::derive(key)?;
    let (certificate, private) = authority.issue(job, name)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(authority.roots()?, provider());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(internal)?
        .with_client_cert_verifier(verifier.build().map_err(internal)?)
        .with_single_cert(vec![certificate], private)
        .map_err(internal)?;
    // Nobody resumes: a link is made once.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// For a dialer called `name`.
pub(crate) fn client_config(job: JobId, key: &JobKey, name: &str) -> Result<Arc<ClientConfig>, NetError> {
    let authority = Authority::derive(key)?;
    let (certificate, private) = authority.issue(job, name)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(internal)?
        .with_root_certificates(authority.roots()?)
        .with_client_auth_cert(vec![certificate], private)
        .map_err(internal)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// That the certificate that came first in `chain` was issued to `name`.
pub(crate) fn check_certificate(
    chain: Option<&[CertificateDer<'static>]>,
    job: JobId,
    name: &str,
) -> Result<(), NetError> {
    let wrong = || NetError::WrongName {
        expected: full_name(job, name),
        found: String::new(),
    };
    let certificate = chain.and_then(|chain| chain.first()).ok_or_else(wrong)?;
    let certificate = ParsedCertificate::try_from(certificate).map_err(|_| wrong())?;
    verify_server_name(&certificate, &server_name(job, name)?).map_err(|error| translate(&error, "the peer"))
}

/// Says in the words of a job what went wrong on a connection that is being made.
pub(crate) fn explain(source: io::Error, label: &Arc<str>) -> NetError {
    if let Some(error) = source
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return translate(error, label);
    }
    match source.downcast::<NetError>() {
        Ok(error) => error,
        Err(source) => match source.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => closed(label, "during the handshake"),
            _ => NetError::io(
                format!("the handshake with {label} failed"),
                "the process or network there failed",
            )(source),
        },
    }
}

fn translate(error: &rustls::Error, label: &str) -> NetError {
    use rustls::Error::{
        AlertReceived, InappropriateHandshakeMessage, InappropriateMessage, InvalidCertificate,
        InvalidMessage, NoCertificatesPresented,
    };
    match error {
        // Every authority of grampus has the same name. With another key behind it, a certificate's signature is
        // wrong; with another name, its issuer is unknown.
        InvalidCertificate(CertificateError::BadSignature | CertificateError::UnknownIssuer)
        | AlertReceived(AlertDescription::DecryptError | AlertDescription::UnknownCA) => NetError::WrongKey,
        InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
            other_name(&expected.to_str(), presented)
        }
        AlertReceived(AlertDescription::BadCertificate) => NetError::Unwanted {
            peer: label.to_owned(),
        },
        // Said by `tcp::refuse`.
        AlertReceived(AlertDescription::InsufficientSecurity) => NetError::WrongSecurity {
            ours: Security::Tls,
            theirs: Security::Plain,
        },
        NoCertificatesPresented => {
            NetError::garbage("a TLS client came without a certificate of this job", &[])
        }
        InvalidMessage(_) | InappropriateMessage { .. } | InappropriateHandshakeMessage { .. } => {
            NetError::garbage("what came is not the TLS of grampus", &[])
        }
        other => NetError::Tls {
            peer: label.to_owned(),
            why: other.to_string(),
        },
    }
}

/// A right key with a wrong name: the same member of another job, or another member.
fn other_name(expected: &str, presented: &[String]) -> NetError {
    let found = presented.first().map_or("", String::as_str);
    // rustls shows names as `DnsName("worker-3.….grampus")`.
    let found = found.split('"').nth(1).unwrap_or(found);
    match (job_of(expected), job_of(found)) {
        (Some(ours), Some(theirs)) if ours != theirs => NetError::WrongJob { ours, theirs },
        _ => NetError::WrongName {
            expected: expected.to_owned(),
            found: found.to_owned(),
        },
    }
}

fn job_of(name: &str) -> Option<JobId> {
    let job = name.strip_suffix(".grampus")?.rsplit('.').next()?;
    u64::from_str_radix(job, 16).ok().map(JobId)
}

/// Errors that only a mistake in this crate can cause.
pub(crate) fn internal(error: impl std::fmt::Display) -> NetError {
    NetError::Tls {
        peer: "this process itself".to_owned(),
        why: error.to_string(),
    }
}
