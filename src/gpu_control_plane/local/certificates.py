"""The cluster's own certificate authority.

It and the service account key last; every certificate it signs is made anew at each start, so that none expires
in use.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpu_control_plane.local.credentials import KeyPair, write_private
from gpu_control_plane.local.errors import StateUnreadable

_AUTHORITY_LIFE = dt.timedelta(days=3650)
_LIFE = dt.timedelta(days=365)
_CLOCK_SKEW = dt.timedelta(minutes=5)


class Authority:
    """Signs what the cluster's components show each other. Kept in a folder only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.pair = KeyPair(folder / "ca.crt", folder / "ca.key")
        try:
            self._certificate, self._key = self._load() if self.pair.key.exists() else self._create()
        except (ValueError, TypeError, FileNotFoundError) as error:
            raise StateUnreadable(
                f"The certificate authority in {folder} cannot be read ({error}). Remove the cluster with"
                " `kubectl gpu down` and start it again."
            ) from error

    def server(self, name: str, hosts: Sequence[str]) -> KeyPair:
        """A certificate for a server that is reached by these names and addresses, usable as a client's too."""
        return self._issue(name, [x509.NameAttribute(NameOID.COMMON_NAME, name)], hosts)

    def client(self, name: str, user: str, group: str | None = None) -> KeyPair:
        """A certificate that Kubernetes reads as this user in this group."""
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        return self._issue(name, subject, ())

    def signing_key(self, name: str) -> KeyPair:
        """A key that signs tokens and outlives restarts, with its public half."""
        pair = KeyPair(self._folder / f"{name}.pub", self._folder / f"{name}.key")
        if not pair.key.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            write_private(pair.certificate, public)
            write_private(pair.key, _private_bytes(key))
        return pair

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("its key is of another kind")
        return x509.load_pem_x509_certificate(self.pair.certificate.read_bytes()), key

    def _create(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpu-control-plane local cluster")])
        certificate = (
            _builder(name, name, key.public_key(), _AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(self.pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        write_private(self.pair.key, _private_bytes(key))
        return certificate, key

    def _issue(self, name: str, subject: list[x509.NameAttribute[str]], hosts: Sequence[str]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(x509.Name(subject), self._certificate.subject, key.public_key(), _LIFE)
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False
            )
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        write_private(pair.key, _private_bytes(key))
        return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
