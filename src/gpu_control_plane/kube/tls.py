"""TLS contexts for calling an API server and for being called by it, made from PEM bytes alone.

Nothing here reads or watches files: the code that rotates certificates reads them and makes another context.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from gpu_control_plane.kube.errors import ConfigError, CredentialsError


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Which authorities are trusted for the server (`None`: the system's), and which host is an HTTPS proxy."""

    authorities: bytes | None = None
    authorities_origin: str = "the certificate authority"
    insecure: bool = False
    https_proxy_host: str | None = None


class ClientCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A client certificate with its key, both PEM; `origin` is how messages call it."""

    certificate: bytes
    key: bytes
    origin: str


def client_context(trust: Trust, client: ClientCertificate | None = None) -> ssl.SSLContext:
    """A context for aiohttp's `ssl=`. It verifies as Go's clients do: a CA good for kubectl is good here."""
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    if trust.https_proxy_host is not None:
        context.proxy = (trust.https_proxy_host, ssl.create_default_context())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    # An intermediate may be the trusted end of a chain, and clusters' CAs often lack key identifiers.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif trust.authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, trust.authorities, trust.authorities_origin)
    if client is not None:
        load_certificate(context, client.certificate, client.key, client.origin)
    return context


def server_context(client_authorities: bytes | None = None) -> ssl.SSLContext:
    """A context without a certificate yet. With `client_authorities`, callers must show one of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_authorities is not None:
        _load_authorities(context, client_authorities, "the certificate authority for clients")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    """Give a context its certificate; a live context shows it to new connections from then on."""
    try:
        with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
            context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except _Encrypted:
        raise CredentialsError(
            f"The key of {origin} is encrypted, and no password can be asked for. "
            "Store it decrypted: openssl pkey -in KEY -out NEW_KEY"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CredentialsError(
                f"The key of {origin} does not belong to it. Take both from the same issue."
            ) from None
        raise CredentialsError(
            f"{_sentence(origin)} is not a PEM certificate with a PEM key ({error.reason or error}). "
            "Replace the file or data."
        ) from None


class _Context(ssl.SSLContext):
    """Verifies an HTTPS proxy by the system's authorities, and shows it no client certificate.

    aiohttp has one context for proxy and server; the proxy is recognised by the name it is dialled by.
    """

    proxy: tuple[str, ssl.SSLContext] | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        if self.proxy is not None and server_hostname == self.proxy[0]:
            return self.proxy[1].wrap_bio(incoming, outgoing, server_side, server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def _load_authorities(context: ssl.SSLContext, pem: bytes, origin: str) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"{_sentence(origin)} holds no PEM certificate ({reason}). Replace it by the cluster's CA."
        ) from None


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    """Without this OpenSSL would ask on the terminal and wait for ever."""
    raise _Encrypted


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL reads certificates from files only; one in memory leaves no key on a disk and needs no writable one."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
