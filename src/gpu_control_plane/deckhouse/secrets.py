"""Secrets: read where the description says they are, and put into the form that Deckhouse wants.

Rendering never sees a secret unless somebody asked for `secrets.yml`: until then a text stands in its place that says
where the value comes from and that no program takes for a value.
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from cryptography import x509

from gpu_control_plane.deckhouse.certificates import check_key
from gpu_control_plane.deckhouse.description import SecretReference
from gpu_control_plane.deckhouse.errors import BadSecret
from gpu_control_plane.deckhouse.kinds.secret_settings import secret_settings

_BCRYPT_HASH = re.compile(r"^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$")
_BCRYPT_BYTES = 72
_OPENSSH = b"openssh-key-v1\x00"
_PRIVATE_KEY = re.compile(
    r"^-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----\s.*-----END ([A-Z0-9]+ )*PRIVATE KEY-----\s*$", re.DOTALL
)


class SecretForm(msgspec.Struct, frozen=True):
    """What a document holds of a secret."""

    name: str
    """What the secret is, for people: `sudo password`."""
    shape: str
    """How the document has it: `in Base64`; empty for as it is."""
    encode: Callable[[str], str]
    chosen: bool = False
    """Whether a person makes it up now: a mistake in it would never be seen."""


class SecretText(Protocol):
    """Gives the text that stands in a document for a secret."""

    def __call__(self, reference: SecretReference, form: SecretForm) -> str: ...


def redacted(reference: SecretReference, form: SecretForm) -> str:
    """The text for people: where the value comes from."""
    origin = "asked for" if reference.source == "ask" else f"from {reference}"
    return f"<{', '.join(filter(None, (form.name, form.shape, origin)))}>"


class SecretReader:
    """The text with the secret in it. Each source is read, or asked for, once."""

    def __init__(self, folder: Path, ask: Callable[[SecretForm], str]) -> None:
        self._folder = folder
        self._ask = ask
        self._known: dict[tuple[str, str], str] = {}

    def __call__(self, reference: SecretReference, form: SecretForm) -> str:
        key = (reference, form.name)
        if key not in self._known:
            try:
                self._known[key] = form.encode(self._read(reference, form))
            except ValueError as error:
                raise BadSecret(f"{reference}: {error}.") from None
        return self._known[key]

    def _read(self, reference: SecretReference, form: SecretForm) -> str:
        match reference.source:
            case "env":
                text = os.environ.get(reference.name, "")
                absent = f"The variable {reference.name} is not set: export it, and run this again."
            case "file":
                path = self._folder / Path(reference.name).expanduser()
                absent = f"{path} holds no secret: write it there, readable by you alone (mode 0600)."
                try:
                    text = path.read_text()
                except OSError as error:
                    raise BadSecret(f"{path}: {error.strerror}. It should hold the {form.name}.") from error
                except UnicodeDecodeError:
                    raise BadSecret(f"{path} is no text file.") from None
            case _:
                text = self._ask(form)
                absent = "Nothing was entered."
        if not text.strip():
            raise BadSecret(absent)
        return text


def plain(name: str) -> SecretForm:
    """The secret as it is, on one line."""
    return SecretForm(name, "", _one_line)


def base64_text(name: str) -> SecretForm:
    return SecretForm(name, "in Base64", lambda text: _base64(_one_line(text)))


def ssh_key(name: str) -> SecretForm:
    """A private SSH key in PEM, in Base64 as SSHCredentials hold it."""
    return SecretForm(name, "in Base64", _ssh_key)


def authority_key(certificate: x509.Certificate) -> SecretForm:
    """The private key that belongs to the certificate of an authority, in Base64 as a Secret holds it."""

    def encode(text: str) -> str:
        check_key(certificate, text)
        return _base64(text.strip() + "\n")

    return SecretForm("private key of the authority", "in Base64", encode)


def bcrypt_hash(name: str) -> SecretForm:
    return SecretForm(name, "as a bcrypt hash", _bcrypt_hash, chosen=True)


def docker_config(name: str) -> SecretForm:
    """A Docker configuration file with a login, in Base64."""
    return SecretForm(name, "in Base64", _docker_config)


def licence_login(registry: str, encoding: str) -> SecretForm:
    """The licence key as the login of Deckhouse's registry."""

    def encode(text: str) -> str:
        key = _decoded_licence(_one_line(text)) if encoding == "Base64" else _one_line(text)
        return _base64(json.dumps({"auths": {registry: {"auth": _base64(f"license-token:{key}")}}}))

    return SecretForm("licence key", "as a login of the registry in Base64", encode)


def with_secrets(settings: dict[str, Any], module: str, secret: SecretText) -> dict[str, Any]:
    """The settings with secrets in the place of what says where they come from."""
    places = {path: SecretReference(value) for path, value in secret_settings(settings)}

    def put(value: Any, path: str) -> Any:
        if path in places:
            return secret(places[path], _setting(f"{path} of {module}"))
        if isinstance(value, dict):
            return {name: put(each, f"{path}.{name}" if path else name) for name, each in value.items()}
        return (
            [put(each, f"{path}[{number}]") for number, each in enumerate(value)] if isinstance(value, list) else value
        )

    made: dict[str, Any] = put(settings, "")
    return made


def is_bcrypt_hash(text: str) -> bool:
    """Whether it is a bcrypt hash, as it is or in Base64."""
    if _BCRYPT_HASH.match(text):
        return True
    try:
        return bool(_BCRYPT_HASH.match(base64.b64decode(text, validate=True).decode().strip()))
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return False


def _setting(name: str) -> SecretForm:
    """A setting of a module, as it is, on as many lines as it has."""
    return SecretForm(name, "", lambda text: text.strip("\r\n"))


def _decoded_licence(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("the licence key is not in Base64: set deckhouse.licenseEncoding: Plain") from None


def _ssh_key(text: str) -> str:
    if not _PRIVATE_KEY.match(text):
        raise ValueError("a private key in PEM is needed, from BEGIN … PRIVATE KEY to END … PRIVATE KEY")
    if _has_passphrase(text):
        raise ValueError("this key has a passphrase, which nobody types for Deckhouse: give a key without one")
    return _base64(text.strip() + "\n")


def _has_passphrase(key: str) -> bool:
    """By the key's own head: OpenSSH names a cipher there, other forms say that they are encrypted."""
    if "ENCRYPTED" in key:
        return True
    if "BEGIN OPENSSH PRIVATE KEY" not in key:
        return False
    body = "".join(line for line in key.split("\n") if line and not line.startswith("-"))
    try:
        head = base64.b64decode(body)[:64]
    except binascii.Error:
        return False
    return head.startswith(_OPENSSH) and not head.startswith(_OPENSSH + b"\x00\x00\x00\x04none")


def _docker_config(text: str) -> str:
    try:
        logins = json.loads(text)["auths"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("a Docker configuration with auths is needed, as `docker login` writes it") from None
    if not isinstance(logins, dict) or not logins:
        raise ValueError("this Docker configuration holds no login under auths")
    return _base64(json.dumps({"auths": logins}))


def _bcrypt_hash(text: str) -> str:
    password = _one_line(text)
    if is_bcrypt_hash(password):
        return password
    if len(password.encode()) > _BCRYPT_BYTES:
        raise ValueError(f"bcrypt takes at most {_BCRYPT_BYTES} bytes of a password: choose a shorter one")
    try:
        import bcrypt  # noqa: PLC0415 - an extra of the package
    except ImportError:
        raise ValueError(
            "hashing a password needs the package bcrypt: install gpu-control-plane[deckhouse], or give the hash that "
            "`htpasswd -nBC 10 ''` prints after the colon"
        ) from None
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()


def _one_line(text: str) -> str:
    """Without the end of the line that editors and `echo` leave; a second line is no part of such a secret."""
    line = text.strip("\r\n")
    if "\n" in line:
        raise ValueError("one line is expected, and there are several")
    return line


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
