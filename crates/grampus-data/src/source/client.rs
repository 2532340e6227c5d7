//! Clients of object stores.

use std::error::Error as _;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::{ClientOptions, Error, RetryConfig};

/// For the repetitions of one request together; one alone has 30 s, or AWS_TIMEOUT.
const RETRY_LIMIT: Duration = Duration::from_secs(120);

/// A client of a bucket that speaks S3. Settings come from the variables AWS_*.
pub fn s3(bucket: &str) -> object_store::Result<AmazonS3> {
    install_tls();
    let mut settings = AmazonS3Builder::from_env();
    let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = endpoints.iter().find_map(|key| settings.get_config_value(key));
    // Whoever writes http means it.
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        settings = settings.with_allow_http(true);
    }
    settings.with_bucket_name(bucket).with_retry(retry()).build()
}

/// A client of a web site.
pub(super) fn http(base: &str) -> object_store::Result<HttpStore> {
    install_tls();
    HttpBuilder::new()
        .with_url(base)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(retry())
        .build()
}

fn retry() -> RetryConfig {
    RetryConfig {
        max_retries: 5,
        retry_timeout: RETRY_LIMIT,
        ..RetryConfig::default()
    }
}

fn install_tls() {
    // The clients' TLS asks for a provider of the process; where one is installed already, that one serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What an object store said of an address, in its own words, down to the first cause, and what usually helps.
pub fn explain(url: &str, error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    let advice = match error {
        _ if url.starts_with("http") => "check the address and the network",
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do in this bucket"
        }
        _ => "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the network",
    };
    // Servers answer in XML of several lines.
    format!("{}: {advice}", text.replace('\n', " "))
}
