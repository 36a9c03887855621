//! The blocking HTTP client for the server's own requests: to key sets, span collectors, and ACME
//! directories.

use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A client that trusts the system's certificates, follows no redirect, and fails after `timeout`.
pub fn agent(timeout: Duration) -> ureq::Agent {
    let found = rustls_native_certs::load_native_certs().certs;
    let roots = found.iter().map(|root| Certificate::from_der(root).to_owned());
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots.collect::<Vec<_>>())).build();
    let agent = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(timeout)).max_redirects(0);
    agent.build().into()
}
