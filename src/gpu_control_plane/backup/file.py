"""The file that a backup is: readable YAML in a stable order, with a checksum, and read strictly. Pure.

A YAML file that was cut off is often a YAML file still, so the checksum counts. Whoever edits a backup by hand removes
its line, and everything else is checked all the same.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpupool import PoolSpec
from gpu_control_plane.api.identity import canonical_pci_address
from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.shapes import CARD_UUID
from gpu_control_plane.kube.manifest_yaml import to_yaml
from gpu_control_plane.kube.sentences import one_line
from gpu_control_plane.kube.written_yaml import BadYAML, read_one

KIND: Final = "GPUBackup"
VERSION: Final = 1
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UUID: Final = re.compile(CARD_UUID)
_HEADER: Final = """What people have decided about the GPUs of a cluster.
Into another cluster with the same machines: kubectl gpu restore FILE --dry-run
To edit it, remove the line `checksum`."""


class InvalidBackup(Exception):
    """A file that cannot be restored; the message says what is wrong with it."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: a word that is misspelt is an error."""


class SavedObject(_Part, frozen=True, kw_only=True):
    """An object that people write: its name, and its spec as they wrote it."""

    name: str
    spec: dict[str, object]


class SavedCard(_Part, frozen=True, kw_only=True):
    """What was decided about one card."""

    node: str
    address: str
    uuid: str
    product: str | None = None
    pool: str | None = None
    hold: str | None = None
    ignore: bool = False
    reason: str | None = None
    approved_by: str | None = None
    """Who approved it then: told to people, and never claimed again, since whoever restores it approves it anew."""

    def __str__(self) -> str:
        return f"{self.address} of {self.node}"


class Backup(_Part, frozen=True, kw_only=True, omit_defaults=False):
    """Everything that is kept."""

    cluster: str
    created_at: datetime
    release: str
    """The release that wrote the file."""
    pools: tuple[SavedObject, ...] = ()
    """The oldest first: of pools that would take the same card by themselves the oldest gets it."""
    cluster_policies: tuple[SavedObject, ...] = ()
    nvidia_drivers: tuple[SavedObject, ...] = ()
    cards: tuple[SavedCard, ...] = ()
    left_out: tuple[str, ...] = ()
    """What is to be done by hand after a restore, as sentences."""


def write_backup(backup: Backup) -> str:
    """The text of the file."""
    body = msgspec.to_builtins(backup)
    head: dict[str, object] = {"kind": KIND, "version": VERSION, "checksum": _checksum(body)}
    return to_yaml(head | body, _HEADER)


def read_backup(content: str | bytes, file: str) -> Backup:
    """The backup in the file; `InvalidBackup` says what is wrong with it."""
    document = _document(content, file)
    kind, version = document.pop("kind", None), document.pop("version", None)
    if kind is None:
        raise InvalidBackup(f"{file} is no backup: it has no kind.")
    if kind != KIND:
        raise InvalidBackup(f"{file} is no backup: its kind is {kind!r}, and not {KIND}.")
    if version != VERSION:
        raise InvalidBackup(
            f"{file} has the version {version!r}, and this kubectl gpu reads {VERSION}: use another release."
        )
    checksum = document.pop("checksum", None)
    try:
        backup = msgspec.convert(document, Backup)
    except msgspec.ValidationError as error:
        raise InvalidBackup(f"{file} does not fit: {one_line(str(error))}.") from error
    if checksum is not None and checksum != _checksum(msgspec.to_builtins(backup)):
        raise InvalidBackup(
            f"{file} is not as it was written: its checksum differs. Take another copy, or, if you have edited it,"
            " remove the line `checksum`."
        )
    for fault in faults(backup):
        raise InvalidBackup(f"{file}: {fault}")
    return backup


def _document(content: str | bytes, file: str) -> dict[str, object]:
    try:
        document = read_one(content)
    except BadYAML as error:
        raise InvalidBackup(f"{file}: {error}") from error
    if not isinstance(document, dict):
        raise InvalidBackup(f"{file} is no backup: there is no {KIND} in it.")
    return document


def faults(backup: Backup) -> Iterable[str]:
    """What keeps the file from being restored although its shape is right, as sentences."""
    kinds: Mapping[str, Iterable[SavedObject]] = {
        "GPUPool": backup.pools,
        "ClusterPolicy": backup.cluster_policies,
        "NVIDIADriver": backup.nvidia_drivers,
    }
    for kind, objects in kinds.items():
        for each in objects:
            if _NAME.fullmatch(each.name) is None:
                yield f"{each.name!r} is no name of a {kind}."
        for name in _repeated(each.name for each in objects):
            yield f"the {kind} {name} is in it twice."
    for pool in backup.pools:
        try:
            msgspec.convert(pool.spec, PoolSpec)
        except msgspec.ValidationError as error:
            yield f"the spec of the GPUPool {pool.name} does not fit its schema: {error}."
    for card in backup.cards:
        yield from card_faults(card)
    for uuid in _repeated(card.uuid for card in backup.cards):
        yield f"the card {uuid} is in it twice: a card is in one pool at most."
    for place in _repeated(map(str, backup.cards)):
        yield f"two cards are at {place}."


def card_faults(card: SavedCard) -> Iterable[str]:
    """What is wrong with one card, whatever else is in the file."""
    if _NAME.fullmatch(card.node) is None:
        yield f"{card.node!r} is no name of a node."
    if _UUID.fullmatch(card.uuid) is None:
        yield f"{card.uuid!r} is no UUID of a card."
    try:
        canonical = canonical_pci_address(card.address)
    except ValueError as error:
        yield f"{error}."
        return
    if card.address != canonical:
        yield f"the address {card.address} is written {canonical}."
    if not (card.pool or card.hold or card.ignore):
        yield f"nothing is decided about the card at {card}: it needs a pool, a hold or ignore."


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _checksum(body: Mapping[str, object]) -> str:
    encoded = msgspec.json.encode({"group": GROUP, **body}, order="deterministic")
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"
