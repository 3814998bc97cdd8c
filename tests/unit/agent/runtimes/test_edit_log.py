"""Files of others, whatever they look like: nothing of theirs is ever lost, and nothing of ours stays behind."""

import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.runtimes import atomic_file
from gpu_control_plane.agent.runtimes.config_document import ListItem, SetValue
from gpu_control_plane.agent.runtimes.edit_log import EditLog
from gpu_control_plane.agent.runtimes.interface import FileEdit, RuntimeConfigError

CRI = ("plugins", "io.containerd.grpc.v1.cri")
ENTRIES = (
    SetValue((*CRI, "enable_cdi"), value=True),
    ListItem((*CRI, "cdi_spec_dirs"), "/etc/cdi"),
    ListItem((*CRI, "cdi_spec_dirs"), "/var/run/cdi"),
    SetValue((*CRI, "containerd", "runtimes", "nvidia", "runtime_type"), "io.containerd.runc.v2"),
    SetValue((*CRI, "containerd", "runtimes", "nvidia", "options", "BinaryName"), "/opt/nvidia/runtime"),
)

COMMENTS = st.sampled_from(["", " # why", "  # ü"])
LINES = st.sampled_from(["", "# a note", "\t# indented note", "   "])
HEAD = st.lists(
    st.sampled_from(["version = 2", "root = '/data'", 'imports = ["/x/*.toml"]', "oom_score = -999", "a.b.c = 1"]),
    unique=True,
    max_size=4,
)
TABLES = st.sampled_from(
    [
        '[plugins]\n  [plugins."io.containerd.grpc.v1.cri"]\n    sandbox_image = "pause"{comment}',
        "[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = false{comment}\ncdi_spec_dirs = ['/opt/cdi']",
        '[plugins."io.containerd.grpc.v1.cri"]\ncdi_spec_dirs = [\n  "/opt/cdi",  # theirs\n  "/etc/cdi",\n]{comment}',
        '[plugins."io.containerd.grpc.v1.cri".containerd]{comment}\nsnapshotter = "overlayfs"',
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]{comment}\nruntime_type = "x"',
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "old"{comment}',
        '[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/opt/cni/bin"{comment}',
        '[plugins."io.containerd.gc.v1.scheduler"]\npause_threshold = 0.02{comment}',
        "[metrics]\naddress = ''{comment}",
        "[debug]{comment}\nlevel = 'info'",
        '[notes]\ntext = """\n[plugins]\nenable_cdi = false # no comment, "really"\n"""{comment}',
        "[marks]\nhash = 'a#b'{comment}\nbrackets = [ [1, 2], # one\n  [3] ]\n'odd = key' = 1",
        "[[things]]\nname = 'a'{comment}\n[[things]]\nname = 'b'",
    ]
)


@st.composite
def tomls(draw: st.DrawFn) -> str:
    """A configuration as people write them: any order, any spelling, comments everywhere."""
    parts = [line + draw(COMMENTS) for line in draw(HEAD)]
    parts += [table.format(comment=draw(COMMENTS)) for table in draw(st.lists(TABLES, max_size=5, unique=True))]
    text = "".join(f"{draw(LINES)}\n{part}\n" for part in parts) + draw(LINES)
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    return text


@contextmanager
def scene(name: str, text: str) -> Iterator[tuple[Path, EditLog]]:
    """A file and an edit log. Power failures are not at stake here, and waiting for the disk would take minutes."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        path = Path(folder) / name
        path.write_bytes(text.encode())
        yield path, EditLog(Path(folder) / "state" / "edit_log.json")


def lines_kept(after: bytes, before: str) -> bool:
    """Every line of others is still there, in order; only those we had to say otherwise may differ."""
    ours = ("enable_cdi", "cdi_spec_dirs", "runtime_type", '  "/etc/cdi"')
    rest = iter(after.decode().splitlines())
    return all(line in rest for line in before.splitlines() if line and not line.startswith(ours))


def with_entries(data: dict[str, Any]) -> dict[str, Any]:
    """What the file has to say afterwards, worked out on bare data."""
    for entry in ENTRIES:
        here = data
        for key in entry.keys[:-1]:
            here = here.setdefault(key, {})
        if isinstance(entry, SetValue):
            here[entry.keys[-1]] = entry.value
        elif entry.item not in here.setdefault(entry.keys[-1], []):
            here[entry.keys[-1]] = [*here[entry.keys[-1]], entry.item]
    return data


@settings(max_examples=80, deadline=None)
@given(tomls())
def test_everything_of_others_stays_and_undo_restores_every_byte(text: str) -> None:
    with scene("config.toml", text) as (path, edit_log):
        assert edit_log.write(FileEdit(path, ENTRIES))
        written = path.read_bytes()

        assert tomllib.loads(written.decode()) == with_entries(tomllib.loads(text))
        assert lines_kept(written, text)
        assert not edit_log.write(FileEdit(path, ENTRIES))
        assert path.read_bytes() == written

        assert edit_log.undo(path)
        assert path.read_bytes() == text.encode()
        assert edit_log.edited == ()


@settings(max_examples=80, deadline=None)
@given(tomls())
def test_from_a_file_that_was_changed_since_only_our_entries_are_removed(text: str) -> None:
    with scene("config.toml", text) as (path, edit_log):
        edit_log.write(FileEdit(path, ENTRIES))
        touched = path.read_bytes() + b"\n[later]  # another program\nkey = 1\n"
        path.write_bytes(touched)

        assert not edit_log.write(FileEdit(path, ENTRIES))
        assert path.read_bytes() == touched
        edit_log.undo(path)

        assert tomllib.loads(path.read_bytes().decode()) == {**tomllib.loads(text), "later": {"key": 1}}
        assert lines_kept(path.read_bytes(), f"{text}\n[later]  # another program\nkey = 1")


WORDS = st.text("abcxyz-", min_size=1, max_size=6)
JSONS = st.dictionaries(
    WORDS | st.sampled_from(["features", "runtimes"]).map(lambda key: f"{key}-x"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


@settings(deadline=None)
@given(JSONS, st.sampled_from([None, "  ", "\t", "    "]), st.sampled_from(["", "\n"]))
def test_the_same_for_json(data: dict[str, Any], indent: str | None, end: str) -> None:
    entries = (SetValue(("features", "cdi"), value=True), ListItem(("cdi-spec-dirs",), "/etc/cdi"))
    text = json.dumps(data, indent=indent) + end
    with scene("daemon.json", text) as (path, edit_log):
        edit_log.write(FileEdit(path, entries))
        written = json.loads(path.read_text())
        assert written == {**data, "features": {"cdi": True}, "cdi-spec-dirs": ["/etc/cdi"]}
        assert list(written)[: len(data)] == list(data)
        assert not edit_log.write(FileEdit(path, entries))
        untouched = path.read_bytes()

        path.write_text(json.dumps({**written, "later": 1}))
        edit_log.undo(path)
        assert json.loads(path.read_text()) == {**data, "later": 1}

        path.write_bytes(text.encode())
        edit_log.write(FileEdit(path, entries))
        assert path.read_bytes() == untouched
        edit_log.undo(path)
        assert path.read_bytes() == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "plugins = { 'io.containerd.grpc.v1.cri' = { sandbox_image = 'pause' } }\n",
        "plugins.'io.containerd.grpc.v1.cri'.sandbox_image = 'pause'\n",
        "[plugins.'io.containerd.grpc.v1.cri']\ncdi_spec_dirs = 'all'\n",
        "[plugins.'io.containerd.grpc.v1.cri'.enable_cdi]\n",
        "[[plugins.'io.containerd.grpc.v1.cri']]\na = 1\n",
        "plugins = 1\n",
    ],
)
def test_a_file_in_which_the_entries_have_no_safe_place_is_refused_and_kept(text: str) -> None:
    with scene("config.toml", text) as (path, edit_log):
        with pytest.raises(RuntimeConfigError, match=r"config\.toml was left alone: plugins"):
            edit_log.write(FileEdit(path, ENTRIES))

        assert path.read_text() == text
        assert edit_log.edited == ()


def test_an_entry_that_was_changed_since_stays() -> None:
    with scene("config.toml", "[plugins.x]\non = false\nlist = ['/a']\n") as (path, edit_log):
        edit_log.write(
            FileEdit(path, (SetValue(("plugins", "x", "on"), value=True), ListItem(("plugins", "x", "list"), "/b")))
        )
        path.write_text("[plugins.x]\non = 3\nlist = ['/a', '/b', '/c']\n")

        edit_log.undo(path)

        assert path.read_text() == "[plugins.x]\non = 3\nlist = ['/a', '/c']\n"


def test_a_replaced_value_comes_back() -> None:
    with scene("config.toml", "on = false # off\n") as (path, edit_log):
        edit_log.write(FileEdit(path, (SetValue(("on",), value=True),)))
        assert path.read_text() == "on = true # off\n"
        path.write_text("# new\non = true # off\n")

        edit_log.undo(path)

        assert path.read_text() == "# new\non = false # off\n"


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_crash_at_any_write_is_made_good_by_the_next_run(monkeypatch: pytest.MonkeyPatch, dies_at: int) -> None:
    first = (SetValue(("a",), value=1), SetValue(("b",), value=1))
    second = (SetValue(("b",), value=2),)
    text = "# theirs\nold = true\n"
    real, calls = atomic_file.replace, 0

    def dying(path: Path, content: bytes, *, new_mode: int = 0o644) -> None:
        nonlocal calls
        calls += 1
        if calls == dies_at:
            raise KeyboardInterrupt
        real(path, content, new_mode=new_mode)

    with scene("config.toml", text) as (path, edit_log):
        edit_log.write(FileEdit(path, first))
        with monkeypatch.context() as patched:
            patched.setattr(atomic_file, "replace", dying)
            with pytest.raises(KeyboardInterrupt):
                edit_log.write(FileEdit(path, second))

        edit_log.write(FileEdit(path, second))
        assert path.read_text() == text + "b = 2\n"
        edit_log.undo(path)
        assert path.read_text() == text


def test_a_crash_before_the_first_write_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"oddly" :  [ 1,2 ]}'
    with scene("daemon.json", text) as (path, edit_log):
        real = atomic_file.replace

        def dying(target: Path, content: bytes, *, new_mode: int = 0o644) -> None:
            if target == path:
                raise KeyboardInterrupt
            real(target, content, new_mode=new_mode)

        with monkeypatch.context() as patched:
            patched.setattr(atomic_file, "replace", dying)
            with pytest.raises(KeyboardInterrupt):
                edit_log.write(FileEdit(path, (SetValue(("a",), value=1),)))

        edit_log.undo(path)
        assert path.read_text() == text


def test_a_file_that_has_nothing_more_to_say_is_as_before() -> None:
    text = "b = 1 # theirs\n"
    with scene("config.toml", text) as (path, edit_log):
        edit_log.write(FileEdit(path, (SetValue(("a",), value=1), SetValue(("b",), value=1))))

        assert edit_log.write(FileEdit(path, (SetValue(("b",), value=1),)))

        assert path.read_text() == text
        assert edit_log.edited == ()


def test_rights_and_links_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("a = 1\n")
    real.chmod(0o640)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    edit_log = EditLog(tmp_path / "state" / "edit_log.json")

    edit_log.write(FileEdit(link, (SetValue(("b",), value=2),)))

    assert link.is_symlink()
    assert real.read_text() == "a = 1\nb = 2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert stat.S_IMODE(edit_log.path.stat().st_mode) == 0o600  # it repeats what may be secret
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "real.toml", "state"]  # noqa: PTH208


def test_a_file_that_is_no_toml_is_kept_and_the_reason_told(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"[broken\n")

    with pytest.raises(RuntimeConfigError, match=r"config\.toml cannot be understood and was left alone"):
        EditLog(tmp_path / "edit_log.json").write(FileEdit(path, ENTRIES))

    assert path.read_bytes() == b"[broken\n"
    assert not (tmp_path / "edit_log.json").exists()


def test_a_ledger_that_cannot_be_read_stops_us(tmp_path: Path) -> None:
    (tmp_path / "edit_log.json").write_text("{")

    with pytest.raises(RuntimeConfigError, match=r"edit_log\.json cannot be understood"):
        EditLog(tmp_path / "edit_log.json").write(FileEdit(tmp_path / "config.toml", ENTRIES))
