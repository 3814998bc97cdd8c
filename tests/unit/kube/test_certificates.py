"""Certificates as other programs see them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpu_control_plane.kube.certificates import (
    KeyPair,
    canonical_name,
    issue,
    key_matches,
    new_authority,
    read,
    signed_by,
    split_pem,
)
from gpu_control_plane.kube.tls import load_certificate, server_context

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
AUTHORITY = new_authority("webhooks", now=NOW, valid_for=100 * DAY)
SERVING = issue(AUTHORITY, ["svc.ns.svc", "10.0.0.1", "::1"], now=NOW, valid_for=10 * DAY)


def test_a_serving_certificate_says_what_it_is_for() -> None:
    facts = read(SERVING.certificate)
    assert (facts.issued_at, facts.expires_at) == (NOW, NOW + 10 * DAY)
    assert facts.names == {"svc.ns.svc", "10.0.0.1", "::1"}


def test_a_certificate_is_valid_a_little_before_it_was_made() -> None:
    parsed = x509.load_pem_x509_certificate(SERVING.certificate)
    assert parsed.not_valid_before_utc < NOW - timedelta(minutes=30)


def test_a_serving_certificate_never_outlives_its_authority() -> None:
    late = issue(AUTHORITY, ["a"], now=NOW + 95 * DAY, valid_for=10 * DAY)
    assert read(late.certificate).expires_at == read(AUTHORITY.certificate).expires_at


def test_a_serving_certificate_can_only_serve() -> None:
    extensions = x509.load_pem_x509_certificate(SERVING.certificate).extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_authority_can_sign_no_further_authority() -> None:
    extensions = x509.load_pem_x509_certificate(AUTHORITY.certificate).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)


def test_signatures_distinguish_authorities_of_the_same_name() -> None:
    twin = new_authority("webhooks", now=NOW, valid_for=100 * DAY)
    assert signed_by(SERVING.certificate, AUTHORITY.certificate)
    assert not signed_by(SERVING.certificate, twin.certificate)


@pytest.mark.parametrize(
    ("pair", "fits"),
    [
        (SERVING, True),
        (KeyPair(SERVING.certificate, AUTHORITY.key), False),
        (KeyPair(b"", SERVING.key), False),
        (KeyPair(SERVING.certificate, b"nonsense"), False),
    ],
)
def test_a_key_fits_its_certificate_or_not(pair: KeyPair, fits: bool) -> None:
    assert key_matches(pair) == fits


def test_a_bundle_splits_into_its_certificates() -> None:
    bundle = b"# a comment\n" + AUTHORITY.certificate + b"\n\n" + SERVING.certificate.rstrip()
    assert split_pem(bundle) == [AUTHORITY.certificate, SERVING.certificate]
    assert split_pem(b"") == []


def test_a_private_key_never_shows_in_a_log() -> None:
    assert "PRIVATE" not in repr(SERVING)


@pytest.mark.parametrize(("given", "canonical"), [("a.b", "a.b"), ("0:0::1", "::1"), ("10.0.0.1", "10.0.0.1")])
def test_addresses_have_one_spelling(given: str, canonical: str) -> None:
    assert canonical_name(given) == canonical


def test_a_strict_client_accepts_the_chain() -> None:
    """Python's strictest verification stands for every other TLS stack."""
    now = datetime.now(UTC)
    authority = new_authority("webhooks", now=now, valid_for=DAY)
    pair = issue(authority, ["localhost"], now=now, valid_for=DAY)
    server = server_context()
    load_certificate(server, pair.certificate, pair.key, "the test's certificate")
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="localhost") as connection:
        subject = connection.getpeercert()
        connection.sendall(b"x")
    thread.join()
    assert subject is not None
