"""The file of a backup: what is written is read again, and bad input gets a sentence."""

from datetime import UTC, datetime

import msgspec
import pytest
import yaml

from gpu_control_plane.backup.file import Backup, InvalidBackup, SavedCard, SavedObject, read_backup, write_backup

CARD = SavedCard(
    node="worker-1",
    address="0000:18:00.0",
    uuid="GPU-8f2c",
    product="NVIDIA H200",
    pool="training",
    reason="yes: it is\n2026-05-04",
    approved_by="alice",
)
BACKUP = Backup(
    cluster="https://10.0.0.1:6443",
    created_at=datetime(2026, 5, 4, 12, 0, tzinfo=UTC),
    release="0.1.0",
    pools=(SavedObject(name="training", spec={"maintenance": {"strategy": "Node"}}),),
    cards=(CARD,),
    left_out=("something",),
)


def test_what_is_written_is_read_again() -> None:
    assert read_backup(write_backup(BACKUP), "gpus.yaml") == BACKUP


def test_the_same_decisions_make_the_same_file() -> None:
    assert write_backup(BACKUP) == write_backup(msgspec.structs.replace(BACKUP))


def test_json_is_read_as_well() -> None:
    assert read_backup(msgspec.json.encode(yaml.safe_load(write_backup(BACKUP))).decode(), "gpus.json") == BACKUP


def test_a_file_that_was_cut_off_is_refused() -> None:
    """Wherever that was: what is left is often YAML."""
    whole = write_backup(BACKUP)
    lines = whole.splitlines(keepends=True)
    for length in range(len(lines)):
        with pytest.raises(InvalidBackup):
            read_backup("".join(lines[:length]), "gpus.yaml")


def test_a_file_that_was_edited_says_so_by_having_no_checksum() -> None:
    edited = write_backup(BACKUP).replace("pool: training", "pool: inference")
    with pytest.raises(InvalidBackup, match="remove the line `checksum`"):
        read_backup(edited, "gpus.yaml")
    without = "".join(line for line in edited.splitlines(keepends=True) if not line.startswith("checksum"))
    assert read_backup(without, "gpus.yaml").cards[0].pool == "inference"


def edited(**changes: object) -> str:
    document = yaml.safe_load(write_backup(BACKUP))
    del document["checksum"]
    return yaml.safe_dump({**document, **changes})


def saved(**changes: object) -> dict[str, object]:
    return {**msgspec.to_builtins(CARD), **changes}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no backup"),
        ("- 1", "is no backup"),
        ("a: b: c", "This is no YAML: mapping values are not allowed in this context in line 1, column 5"),
        ("a: b", "is no backup: it has no kind"),
        (b"\xff\xfea", "This is no text in UTF-8, line 1"),
        ("[" * 300_000 + "]" * 300_000, "nested more than 100 levels deep"),
        (write_backup(BACKUP) + "---\n" + write_backup(BACKUP), "There are 2 documents, and one is expected"),
        (edited(kind="GPUPool"), "its kind is 'GPUPool'"),
        (edited(version=2), "has the version 2, and this kubectl gpu reads 1"),
        (edited(colour="red"), "unknown field `colour`"),
        (edited(cards=[saved(pol="training")]), "unknown field `pol`"),
        (edited(cards=[saved(), saved(address="0000:2a:00.0")]), "the card GPU-8f2c is in it twice"),
        (edited(cards=[saved(), saved(uuid="GPU-other")]), "two cards are at 0000:18:00.0 of worker-1"),
        (edited(cards=[saved(address="0000:18:00")]), "is no PCI address"),
        (edited(cards=[saved(address="0000:18:00.0".upper().replace("0000:18", "0000:1A"))]), "is written 0000:1a"),
        (edited(cards=[saved(node="Not a node")]), "'Not a node' is no name of a node"),
        (edited(cards=[saved(uuid="\x1b[31m")]), r"'\x1b[31m' is no UUID"),
        (edited(cards=[saved(pool=None)]), "nothing is decided about the card"),
        (edited(pools=[{"name": "a", "spec": {}}, {"name": "a", "spec": {}}]), "the GPUPool a is in it twice"),
        (edited(pools=[{"name": "a", "spec": {"quotas": 7}}]), "does not fit its schema"),
        (edited(pools=[{"name": "", "spec": {}}]), "'' is no name of a GPUPool"),
        (edited(createdAt="yesterday"), "does not fit"),
    ],
)
def test_bad_input_gets_a_sentence(text: str | bytes, sentence: str) -> None:
    with pytest.raises(InvalidBackup) as refused:
        read_backup(text, "gpus.yaml")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("gpus.yaml")
