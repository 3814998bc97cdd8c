"""The Dockerfile cannot be built here: no engine, no registry. So it is read, and held to what the recipe says."""

import json
import re
import shlex
from pathlib import Path

import pytest
from images.recipe import CONFIGURATION

PROJECT = Path(__file__).parents[2]
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n", " ", (PROJECT / "Dockerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]
RESULT = INSTRUCTIONS[max(place for place, (verb, _) in enumerate(INSTRUCTIONS) if verb == "FROM") :]


def _instruction(verb: str) -> str:
    [value] = [rest for each, rest in RESULT if each == verb]
    return value


def _pairs(verb: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(_instruction(verb)))


def test_it_starts_as_the_recipe_says() -> None:
    assert _instruction("USER") == CONFIGURATION.user
    assert tuple(json.loads(_instruction("ENTRYPOINT"))) == CONFIGURATION.entrypoint
    assert _instruction("WORKDIR") == CONFIGURATION.working_dir


def test_its_environment_and_labels_are_the_recipes() -> None:
    assert tuple(f"{name}={value}" for name, value in _pairs("ENV").items()) == CONFIGURATION.env
    assert _pairs("LABEL") == CONFIGURATION.labels


def test_every_base_has_a_tag_that_stays_in_its_release() -> None:
    bases = [rest for verb, rest in INSTRUCTIONS if verb == "FROM"]
    names = [next(word for word in base.split() if not word.startswith("--")) for base in bases]
    assert names[-1] == "scratch"
    for name in names[:-1]:
        assert re.fullmatch(r"[a-z]+:(?!latest)[\w.-]+", name)


def test_stages_that_are_copied_from_exist() -> None:
    made = {rest.split(" AS ")[1] for verb, rest in INSTRUCTIONS if verb == "FROM" and " AS " in rest}
    used = {found for verb, rest in INSTRUCTIONS if verb == "COPY" for found in re.findall(r"--from=(\S+)", rest)}
    assert used == made == {"recipe"}


def test_what_it_copies_is_there() -> None:
    copied = [rest.split()[:-1] for verb, rest in INSTRUCTIONS if verb == "COPY" and "--from" not in rest]
    assert [path for paths in copied for path in paths if not (PROJECT / path).exists()] == []


def test_uv_is_the_makefiles() -> None:
    assert (
        "pip install --quiet --disable-pip-version-check --require-hashes -r tools/uv.txt"
        in (PROJECT / "Makefile").read_text()
    )
    assert ("COPY", "tools/uv.txt /") in INSTRUCTIONS
    assert any("--require-hashes -r /uv.txt" in rest for verb, rest in INSTRUCTIONS if verb == "RUN")


@pytest.mark.parametrize("option", ["--locked", "--no-dev"])
def test_dependencies_are_the_locked_ones_without_tools(option: str) -> None:
    for verb, rest in INSTRUCTIONS:
        if verb == "RUN" and re.search(r"\buv (sync|run)\b", rest):
            assert option in rest
