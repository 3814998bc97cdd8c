"""Certificates in PEM. What is rendered is written anew from what was read, so that nothing else of a file, such as a
text above the certificate, gets into a script that runs as root."""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key


class NoCertificate(ValueError):
    """The text holds no certificate that can be read."""


def certificates_in(text: str) -> list[x509.Certificate]:
    """All certificates of a file."""
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError as error:
        raise NoCertificate from error


def pem(text: str) -> str:
    """The certificates of a file and nothing else."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates_in(text))


def may_sign(certificate: x509.Certificate) -> bool:
    """Whether certificates that it signs are believed."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def check_key(certificate: x509.Certificate, key: str) -> None:
    """`ValueError` says why the key cannot sign in the name of the certificate. It holds nothing of the key."""
    try:
        private = load_pem_private_key(key.encode(), password=None)
    except TypeError:
        raise ValueError("this key has a passphrase, which nobody types in a cluster: give it without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("a private key in PEM is needed, from BEGIN … PRIVATE KEY to END … PRIVATE KEY") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise ValueError("this is not the key of the authority's certificate: give the one that belongs to it")
