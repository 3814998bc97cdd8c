import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.cdi.edits import device_node_edits
from gpu_control_plane.agent.cdi.spec import Device, qualified_name
from gpu_control_plane.agent.cdi.spec_file import ConflictingFile, SpecChange, SpecFile
from unit.agent.cdi.builders import CARD, OTHER, common, device, node
from unit.agent.cdi.rules import resolvable, violations


def _document(store: SpecFile) -> Any:
    return json.loads(store.path.read_text())


def _names(store: SpecFile) -> list[str]:
    return [entry["name"] for entry in _document(store)["devices"]]


def test_what_is_wanted_is_written(tmp_path: Path) -> None:
    store = SpecFile(tmp_path / "cdi")

    change = store.update([device(CARD), device(OTHER, 1)], common(), held=())

    assert change == SpecChange(written=True, added=(OTHER, CARD))
    assert violations(_document(store)) == []
    assert store.path.stat().st_mode & 0o777 == 0o644


def test_nothing_is_written_when_nothing_differs(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD), device(OTHER, 1)], common(), held=())
    before = store.path.stat()

    change = SpecFile(tmp_path).update([device(OTHER, 1), device(CARD)], common(), held=[CARD])

    assert change == SpecChange()
    after = store.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_held_device_stays_until_it_is_released(tmp_path: Path) -> None:
    SpecFile(tmp_path).update([device(CARD), device(OTHER, 1)], common(), held=())

    kept = SpecFile(tmp_path).update([device(OTHER, 1)], common("590.1"), held=[CARD])
    assert kept == SpecChange(written=True, retained=(CARD,))
    assert _names(SpecFile(tmp_path)) == [OTHER, CARD]

    gone = SpecFile(tmp_path).update([device(OTHER, 1)], common("590.1"), held=())
    assert gone == SpecChange(written=True, removed=(CARD,))


def test_a_wanted_device_is_brought_up_to_date_even_while_held(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD, 0)], common(), held=())

    change = store.update([device(CARD, 4)], common(), held=[CARD])

    assert change == SpecChange(written=True, altered=(CARD,))
    assert _document(store)["devices"][0]["containerEdits"]["deviceNodes"][0]["minor"] == 4


def test_the_driver_s_part_is_remembered_while_it_is_away(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD)], common(), held=())
    before = _document(store)["containerEdits"]

    store.update([], None, held=[CARD])

    assert _document(store)["containerEdits"] == before


def test_a_file_without_devices_is_removed(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD)], common(), held=())

    assert store.update([], common(), held=()) == SpecChange(written=True, removed=(CARD,))
    assert not store.path.exists()
    assert store.update([], common(), held=()) == SpecChange()


def test_a_held_device_that_is_not_in_the_file_is_reported(tmp_path: Path) -> None:
    assert SpecFile(tmp_path).update([device(CARD)], common(), held=[OTHER]).unknown == (OTHER,)


def test_a_held_device_whose_files_are_another_card_s_now_is_withdrawn(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD, 0), device(OTHER, 1)], common(), held=())

    change = store.update([device(OTHER, 0)], common(), held=[CARD, OTHER])

    assert change == SpecChange(written=True, altered=(OTHER,), removed=(CARD,), withdrawn=(CARD,))


_INSTANCE = Device(f"{CARD}:1g.18gb:0", device_node_edits([node(0), node(21, "/dev/nvidia-caps/nvidia-cap21")]))
_NEIGHBOUR = Device(f"{CARD}:1g.18gb:1", device_node_edits([node(0), node(30, "/dev/nvidia-caps/nvidia-cap30")]))
_RECUT = Device(f"{CARD}:2g.35gb:0", _INSTANCE.container_edits)
_SAME_NUMBER = Device(OTHER, device_node_edits([node(0, "/dev/nvidia1")]))
_WITH_DISPLAY = Device(OTHER, device_node_edits([node(0), node(128, "/dev/dri/renderD128")]))
_DISPLAY_ONLY = Device(OTHER, device_node_edits([node(128, "/dev/dri/renderD128")]))


@pytest.mark.parametrize(
    ("held", "wanted", "withdrawn"),
    [
        pytest.param(_INSTANCE, _NEIGHBOUR, False, id="a neighbour shares the card's own file"),
        pytest.param(_INSTANCE, _RECUT, True, id="another instance behind the same capability"),
        pytest.param(_INSTANCE, device(CARD), True, id="the whole card, MIG being off"),
        pytest.param(device(CARD), _INSTANCE, False, id="instances of a card that is held whole"),
        pytest.param(device(CARD), _WITH_DISPLAY, True, id="another card that also has a display"),
        pytest.param(device(CARD), _DISPLAY_ONLY, False, id="another vendor's card"),
        pytest.param(device(CARD), _SAME_NUMBER, False, id="a simulated card, whose files all have one number"),
    ],
)
def test_withdrawn_is_what_would_open_another_device(
    tmp_path: Path, held: Device, wanted: Device, *, withdrawn: bool
) -> None:
    store = SpecFile(tmp_path)
    store.update([held], common(), held=())

    change = store.update([wanted], common(), held=[held.name])

    assert (change.withdrawn, change.retained) == (((held.name,), ()) if withdrawn else ((), (held.name,)))


def test_a_crash_before_the_new_file_is_in_place_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD)], common(), held=())
    before = store.path.read_bytes()

    with monkeypatch.context() as dying:
        dying.setattr(Path, "replace", _die)
        with pytest.raises(KeyboardInterrupt):
            store.update([device(OTHER, 1)], common(), held=[CARD])

    assert store.path.read_bytes() == before
    assert set(resolvable([tmp_path])) == {qualified_name(CARD)}

    change = SpecFile(tmp_path).update([device(OTHER, 1)], common(), held=[CARD])
    assert change == SpecChange(written=True, added=(OTHER,), retained=(CARD,))
    assert [file.name for file in tmp_path.iterdir()] == [store.path.name]


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damaged", [b"", b'{"cdiVersion": "0.3.0", ', b'{"kind": "\xff"}'])
def test_a_damaged_file_is_replaced_and_reported(tmp_path: Path, damaged: bytes) -> None:
    store = SpecFile(tmp_path)
    store.path.write_bytes(damaged)

    change = store.update([device(CARD)], common(), held=())

    assert str(store.path) in (change.damaged or "")
    assert violations(_document(store)) == []


def test_another_file_of_our_kind_is_reported(tmp_path: Path) -> None:
    store = SpecFile(tmp_path)
    rival = SpecFile(tmp_path, "copy.json")
    rival.update([device(CARD), device("x", 9)], common(), held=())
    (tmp_path / "old.yaml").write_text(f"kind: gpu.deckhouse.io/gpu\ndevices:\n- name: {OTHER}\n")
    (tmp_path / "nvidia.yaml").write_text(f"kind: nvidia.com/gpu\ndevices:\n- name: {CARD}\n")
    (tmp_path / "notes.txt").write_text("gpu.deckhouse.io/gpu")
    (tmp_path / "broken.json").write_text('{"kind": "gpu.deckhouse.io/gpu')

    change = store.update([device(CARD)], common(), held=())

    assert change.conflicting == (ConflictingFile("copy.json", (CARD,)), ConflictingFile("old.yaml", ()))


_CARDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
_STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(_CARDS), st.integers(0, 9), max_size=4),
        st.sets(st.sampled_from(_CARDS)),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(_STEPS)
def test_whatever_happens_every_held_name_resolves(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, int], set[str], bool, bool]]
) -> None:
    """Cards come, go and are renumbered, drivers leave, the agent restarts or dies while writing: a pod that got a card
    keeps it, except when its device file has become another card's."""
    folder = tmp_path_factory.mktemp("cdi")
    store = SpecFile(folder)
    known: dict[str, int] = {}
    held: set[str] = set()
    for wanted, claims, away, dies in steps:
        held = (held | claims) & known.keys()
        if dies:
            store._unfinished.write_bytes(b'{"cdiVersion"')
            store = SpecFile(folder)
        known = {name: known[name] for name in held if known[name] not in wanted.values()} | wanted

        store.update([device(name, minor) for name, minor in wanted.items()], None if away else common(), held)

        assert _minors(folder) == {qualified_name(name): minor for name, minor in known.items()}
        assert not store.path.exists() or violations(_document(store)) == []


def _minors(folder: Path) -> dict[str, int]:
    found = resolvable([folder])
    return {name: entry["containerEdits"]["deviceNodes"][0]["minor"] for name, entry in found.items()}


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{"), Path.exists])
def test_a_file_that_another_program_removed_or_damaged_is_restored_with_what_pods_hold(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store = SpecFile(tmp_path)
    store.update([device(CARD), device(OTHER, 1)], common(), held=())
    store.update([device(CARD)], common(), held=[OTHER])
    before = store.path.read_bytes()
    assert store.intact

    damage(store.path)

    assert store.intact is (store.path.exists() and store.path.read_bytes() == before)
    store.update([device(CARD)], common(), held=[OTHER])
    assert store.path.read_bytes() == before
    assert store.intact
