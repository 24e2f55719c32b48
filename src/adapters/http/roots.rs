//! Whom TLS trusts: the certificates of the file `SSL_CERT_FILE`, else those of this machine.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::Machine;

/// The settings of a connection.
pub(super) fn settings(machine: &Machine<'_>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let certificates = match machine.variable("SSL_CERT_FILE") {
        Some(path) => of_file(Path::new(path))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (good, _) = roots.add_parsable_certificates(certificates);
    if good == 0 {
        return Err("no certificate is trusted here: install ca-certificates, or set SSL_CERT_FILE".to_owned());
    }
    let settings = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be used: {e}"))?;
    Ok(Arc::new(settings.with_root_certificates(roots).with_no_client_auth()))
}

fn of_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable =
        |e: &dyn std::fmt::Display| format!("cannot read the certificates of SSL_CERT_FILE {}: {e}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(&e))?;
    found.collect::<Result<_, _>>().map_err(|e| unreadable(&e))
}
