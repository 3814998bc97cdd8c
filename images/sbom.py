"""The list of what is in an image or another artifact, in SPDX 2.3: every package with version and checksum.

The same artifact has the same list: nothing in it depends on when or where it was written.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from images.licences import REFERENCE, copyright_file, declared
from images.lock import Lock
from images.wheels import Distribution

LICENCE = "Apache-2.0"
"""Ours."""
_UNKNOWN = "NOASSERTION"


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One package of any kind."""

    id: str
    name: str
    version: str
    sha256: str
    licence: str | None
    address: str
    """As a package URL."""
    origin: str | None = None
    """Where its file can be had."""
    supplier: str | None = None


def debian_components(lock: Lock, root: Path) -> Iterator[Component]:
    """The recorded packages, with the licences that their files in `root` state."""
    distro = f"arch={lock.architecture}&distro=debian-{lock.suite}"
    for package in lock.packages:
        text = copyright_file(root, package.name).read_text(errors="replace")
        yield Component(
            id=identifier("debian", package.name),
            name=package.name,
            version=package.version,
            sha256=package.sha256,
            licence=declared(text),
            address=f"pkg:deb/debian/{quote(package.name)}@{quote(package.version, safe='')}?{distro}",
            supplier="Organization: Debian",
        )


def python_components(distributions: Sequence[Distribution]) -> Iterator[Component]:
    for each in distributions:
        yield Component(
            id=identifier("python", each.name),
            name=each.name,
            version=each.version,
            sha256=each.sha256,
            licence=each.licence,
            address=f"pkg:pypi/{quote(each.name)}@{quote(each.version, safe='')}",
            origin=each.url,
        )


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The artifact that a list is about."""

    component: Component
    purpose: str
    """In SPDX's words: CONTAINER, ARCHIVE, LIBRARY."""
    relation: str = "CONTAINS"
    """What it has to do with the packages: CONTAINS or DEPENDS_ON."""


def image_subject(*, name: str, version: str, architecture: str, digest: str) -> Subject:
    """An image by its digest, by which the list and the image find each other."""
    address = f"pkg:oci/{name}@{quote(digest, safe='')}?arch={architecture}"
    checksum = digest.removeprefix("sha256:")
    return Subject(
        component=Component(
            id="SPDXRef-image", name=name, version=version, sha256=checksum, licence=LICENCE, address=address
        ),
        purpose="CONTAINER",
    )


def write_sbom(path: Path, *, subject: Subject, title: str, created: str, components: list[Component]) -> None:
    """`title` names the list: the artifact's name, version and platform."""
    top = subject.component
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": title,
        "documentNamespace": f"https://spdx.org/spdxdocs/{title}-{top.sha256}",
        "creationInfo": {"created": created, "creators": [f"Tool: {top.name}-{top.version}"]},
        "packages": [
            {**_package(top), "primaryPackagePurpose": subject.purpose},
            *(_package(each) for each in components),
        ],
        "hasExtractedLicensingInfos": list(_references(components)),
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", top.id),
            *(_related(top.id, subject.relation, each.id) for each in components),
        ],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def _package(component: Component) -> dict[str, Any]:
    about = {
        "SPDXID": component.id,
        "name": component.name,
        "versionInfo": component.version,
        "downloadLocation": component.origin or _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": component.licence or _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "checksums": [{"algorithm": "SHA256", "checksumValue": component.sha256}],
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": component.address,
            }
        ],
    }
    if component.supplier:
        about["supplier"] = component.supplier
    return about


def _references(components: list[Component]) -> Iterator[dict[str, str]]:
    used = {found for each in components for found in re.findall(rf"{REFERENCE}[\w.-]+", each.licence or "")}
    for reference in sorted(used):
        name = reference.removeprefix(REFERENCE)
        yield {
            "licenseId": reference,
            "name": name,
            "extractedText": f"What Debian calls {name}. The text is in the image, in /usr/share/doc/*/copyright.",
        }


def _related(one: str, how: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}


def identifier(kind: str, name: str) -> str:
    """A package's name inside a list."""
    return f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', name.replace('+', 'plus'))}"
