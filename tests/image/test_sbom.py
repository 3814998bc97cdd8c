"""The SBOM: valid SPDX with SPDX licence names, and a checker that finds violations."""

import json
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any, cast

import pytest
from images.licences import declared, stated
from images.sbom import Component, image_subject, write_sbom

from image.spdx import faults

ADDRESS = "pkg:deb/debian/libstdc%2B%2B6@1%3A2?arch=amd64"
COMPONENT = Component(
    id="SPDXRef-debian-thing",
    name="thing",
    version="1:2",
    sha256="a" * 64,
    licence="(GPL-2.0-only OR LicenseRef-Debian-own) AND MIT",
    address=ADDRESS,
)


@pytest.fixture
def document(tmp_path: Path) -> Any:
    write_sbom(
        tmp_path / "list.json",
        subject=image_subject(name="image", version="1.0", architecture="amd64", digest=f"sha256:{'b' * 64}"),
        title="image-1.0-amd64",
        created="2026-11-01T00:00:00Z",
        components=[COMPONENT],
    )
    return json.loads((tmp_path / "list.json").read_text())


def test_the_list_is_valid(document: Any) -> None:
    assert faults(document) == []


def test_the_list_names_the_image_and_what_it_contains(document: Any) -> None:
    image, thing = document["packages"]
    assert image["checksums"] == [{"algorithm": "SHA256", "checksumValue": "b" * 64}]
    assert (thing["name"], thing["versionInfo"], thing["licenseDeclared"]) == ("thing", "1:2", COMPONENT.licence)
    contained = [each for each in document["relationships"] if each["relationshipType"] == "CONTAINS"]
    assert [each["relatedSpdxElement"] for each in contained] == ["SPDXRef-debian-thing"]


BREAKS: dict[str, Callable[[Any], object]] = {
    "the document has no name": lambda it: it.pop("name"),
    "dataLicense is not CC0-1.0": lambda it: it.update(dataLicense="MIT"),
    "created is not a time in UTC": lambda it: it["creationInfo"].update(created="yesterday"),
    "SPDXRef-debian-thing has no versionInfo": lambda it: it["packages"][1].pop("versionInfo"),
    "SPDXRef-debian-thing has no SHA-256": lambda it: it["packages"][1].pop("checksums"),
    "SPDXRef-debian-thing has no package URL": lambda it: it["packages"][1].pop("externalRefs"),
    "SPDXRef-image is there twice": lambda it: it["packages"].append(it["packages"][0]),
    "LicenseRef-Debian-own is not explained": lambda it: it["hasExtractedLicensingInfos"].clear(),
    "SPDXRef-debian-thing belongs to nothing": lambda it: it["relationships"].pop(),
    "SPDXRef-debian-thing: GPL? is no licence": lambda it: it["packages"][1].update(licenseDeclared="GPL? AND MIT"),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_each_broken_rule_is_found(document: Any, fault: str) -> None:
    BREAKS[fault](document)
    assert fault in faults(document)


HEADER = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("Files: *\nLicense: Expat\n", "MIT"),
        ("Files: *\nLicense: GPL-2+\n\nFiles: a\nLicense: LGPL-2.1\n", "GPL-2.0-or-later AND LGPL-2.1-only"),
        ("Files: *\nLicense: GPL-1+ or Artistic\n", "(Artistic-1.0-Perl OR GPL-1.0-or-later)"),
        ("Files: *\nLicense: BSD-3-clause, and Zlib\n", "BSD-3-Clause AND Zlib"),
        ("Files: *\nLicense: GPL-3+ with GCC exception\n", "LicenseRef-Debian-GPL-3-or-later-with-GCC-exception"),
        ("Files: *\nLicense: MIT\n\nLicense: GPL-2\n Only explains.\n", "MIT"),
    ],
)
def test_debian_licences_become_expressions(text: str, expression: str) -> None:
    assert declared(HEADER + text) == expression


def test_a_copyright_file_for_people_says_nothing_to_machines() -> None:
    assert declared("This is free software.\nLicense: MIT\n") is None


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({"License-Expression": "MIT OR Apache-2.0", "License": "other"}, "MIT OR Apache-2.0"),
        ({"License": "Apache 2"}, "Apache-2.0"),
        ({"License": "long text", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, None),  # which of them?
    ],
)
def test_python_licences_become_expressions(fields: dict[str, str], expression: str | None) -> None:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    assert stated(cast("Any", metadata)) == expression
