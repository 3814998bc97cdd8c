"""Files of people are read strictly: nothing is lost without a word, and nothing takes more memory than it says."""

import pytest

from gpu_control_plane.kube.written_yaml import BadYAML, read_one, read_yaml

BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))

BAD: list[tuple[str | bytes, str]] = [
    ("a: 1\nb: 2\na: 3", "Line 3: a was there in line 1, and only the last would count: keep one of them."),
    ("a: {b: 1, b: 2}", "Line 1: b was there in line 1"),
    ("- {x: 1}\n- {y: 1, z: 2, y: 3}", "Line 2: y was there in line 2"),
    (BOMB, "with its references written out, this is too large to be meant"),
    ("a: &a [*a]", "Line 1: this contains itself: write it out."),
    ("a: " + "[" * 200_000 + "]" * 200_000, "nested more than 100 levels deep"),
    ("a: .nan", "Line 1: .nan is no number that Kubernetes knows"),
    ("a: [1, -.Inf]", "Line 1: -.Inf is no number"),
    ("a: [", "a flow node did not find expected node content in line 2, column 1."),
    ("a: !!python/name:os.system", "This is no YAML: could not determine a constructor"),
    (b"a: b\nc: \xe9", "This is no text in UTF-8, line 2: save it as UTF-8."),
    ("a: 1\n---\na: 2\n", "There are 2 documents, and one is expected"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_what_cannot_be_meant_is_refused(text: str | bytes, sentence: str) -> None:
    with pytest.raises(BadYAML) as refused:
        read_one(text)
    assert sentence in str(refused.value)


def test_a_large_file_without_references_is_read() -> None:
    """A backup of a large fleet has more values than a bomb may stand for."""
    assert len(read_one("[" + "1, " * 300_000 + "]")) == 300_000


def test_ordinary_files_are_read_as_ever() -> None:
    text = b"\xef\xbb\xbfa: &x {b: 1.5}\nc: *x\nd: {<<: *x, e: 1e3, f: 6e}\n---\n---\n[1, null]\n"
    assert list(read_yaml(text)) == [
        {"a": {"b": 1.5}, "c": {"b": 1.5}, "d": {"b": 1.5, "e": "1e3", "f": "6e"}},
        None,
        [1, None],
    ]
    assert read_one("") is None
