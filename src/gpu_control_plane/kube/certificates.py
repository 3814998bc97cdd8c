"""Certificates for serving TLS, made and read here: a small certificate authority on ECDSA P-256.

Pure functions: the time is passed in, nothing is stored. When to make which certificate is decided in
`certificate_rotation`.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(hours=1)
"""How long before now a certificate begins, so that a peer whose clock is behind accepts it."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.certificate!r})"


class CertificateInfo(msgspec.Struct, frozen=True):
    """What a certificate says; `issued_at` is without the backdating."""

    issued_at: datetime
    expires_at: datetime
    names: frozenset[str]


def new_authority(name: str, *, now: datetime, valid_for: timedelta) -> KeyPair:
    """A self-signed certificate authority that can sign serving certificates and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = (
        _builder(subject, subject, key, now=now, expires_at=now + valid_for)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, key)


def issue(authority: KeyPair, names: Sequence[str], *, now: datetime, valid_for: timedelta) -> KeyPair:
    """A serving certificate for DNS names and IP addresses, never outliving the authority that signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    expires_at = min(now + valid_for, issuer.not_valid_after_utc)
    issuer_key = _private_key(authority.key)
    builder = (
        _builder(subject, issuer.subject, key, now=now, expires_at=expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _signed(builder, key, issuer_key)


def read(certificate: bytes) -> CertificateInfo:
    """What a certificate of ours says. `ValueError` when it is not PEM."""
    parsed = x509.load_pem_x509_certificate(certificate)
    return CertificateInfo(
        issued_at=parsed.not_valid_before_utc + BACKDATED,
        expires_at=parsed.not_valid_after_utc,
        names=_names(parsed.extensions),
    )


def key_matches(pair: KeyPair) -> bool:
    """Whether the key is that of the certificate; false for anything that is not PEM."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        return certificate.public_key() == _private_key(pair.key).public_key()
    except ValueError:
        return False


def signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether the authority's key really made the certificate's signature."""
    try:
        issuer = x509.load_pem_x509_certificate(authority)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def split_pem(pem: bytes) -> list[bytes]:
    """The blocks of a PEM file, each on its own."""
    blocks: list[bytes] = []
    current: list[bytes] = []
    for line in pem.splitlines():
        if line.startswith(b"-----BEGIN ") or current:
            current.append(line)
        if line.startswith(b"-----END ") and current:
            blocks.append(b"\n".join(current) + b"\n")
            current = []
    return blocks


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, expires_at: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - BACKDATED)
        .not_valid_after(expires_at.astimezone(UTC))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def canonical_name(name: str) -> str:
    """A DNS name or address as a certificate spells it."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    def general(name: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            return x509.DNSName(name)

    return [general(name) for name in names]


def _names(extensions: x509.Extensions) -> frozenset[str]:
    try:
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = (str(address) for address in alternatives.get_values_for_type(x509.IPAddress))
    return frozenset({*alternatives.get_values_for_type(x509.DNSName), *addresses})


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(signer, hashes.SHA256())
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic curve key")  # noqa: TRY004 - wrong data, not a wrong call
    return key
