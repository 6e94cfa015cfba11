//! A certificate authority of one test's own, and a server certificate for the loopback signed by it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Where the PEM files lie.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes an authority and a certificate for `127.0.0.1` and `localhost`, and writes them to
/// `folder`. The authority's own key is thrown away.
pub(crate) fn write_to(folder: &Path) -> Files {
    let (ca, cert, key) = make().unwrap_or_else(|e| panic!("cannot make a certificate: {e}"));
    let write = |name: &str, pem: String| {
        let path = folder.join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(pem.as_bytes()))
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    };
    Files { ca: write("ca.pem", ca), cert: write("cert.pem", cert), key: write("key.pem", key) }
}

fn make() -> Result<(String, String, String), rcgen::Error> {
    let mut ca_params = CertificateParams::new(Vec::new())?;
    ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca_params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca_params.distinguished_name.push(DnType::CommonName, "Paceline test authority");
    let ca_key = KeyPair::generate()?;
    let ca = ca_params.self_signed(&ca_key)?;

    let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()])?;
    params.distinguished_name.push(DnType::CommonName, "localhost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A client shows the same one where the server asks for one.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, &Issuer::new(ca_params, ca_key))?;
    Ok((ca.pem(), cert.pem(), key.serialize_pem()))
}
