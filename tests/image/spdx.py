"""The rules of SPDX 2.3 that readers of a list of contents rely on."""

import re
from collections.abc import Iterator
from typing import Any

_DOCUMENT = ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages")
_PACKAGE = ("SPDXID", "name", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText")
_ID = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_WORD = re.compile(r"(?:DocumentRef-|LicenseRef-)?[A-Za-z0-9][A-Za-z0-9.-]*\+?")
_PURL = re.compile(r"pkg:[a-z]+/[^@\s]+@[^?\s]+(\?\S+)?")


def faults(document: dict[str, Any]) -> list[str]:
    """Every rule that a document breaks, as a sentence."""
    return [*_document(document), *_packages(document), *_licences(document), *_relationships(document)]


def _document(document: dict[str, Any]) -> Iterator[str]:
    yield from (f"the document has no {field}" for field in _DOCUMENT if not document.get(field))
    wanted = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT"}
    yield from (f"{field} is not {value}" for field, value in wanted.items() if document.get(field) != value)
    if not re.fullmatch(r"https?://[^#\s]+", document.get("documentNamespace", "")):
        yield "documentNamespace is not an address without a fragment"
    about = document.get("creationInfo", {})
    if not _TIME.fullmatch(about.get("created", "")):
        yield "created is not a time in UTC"
    creators = about.get("creators", [])
    if not creators or not all(re.match(r"(Tool|Organization|Person): \S", each) for each in creators):
        yield "creators are not tools, organizations or persons"


def _packages(document: dict[str, Any]) -> Iterator[str]:
    ids = [package.get("SPDXID", "") for package in document.get("packages", [])]
    yield from (f"{each} is there twice" for each in {each for each in ids if ids.count(each) > 1})
    for package in document.get("packages", []):
        name = package.get("SPDXID", "a package")
        yield from (f"{name} has no {field}" for field in _PACKAGE if not package.get(field))
        if not _ID.fullmatch(package.get("SPDXID", "")):
            yield f"{name} is no identifier"
        if package.get("filesAnalyzed") is not False:
            yield f"{name} claims that its files were looked at"
        sums = {each["algorithm"]: each["checksumValue"] for each in package.get("checksums", [])}
        if not re.fullmatch("[0-9a-f]{64}", sums.get("SHA256", "")):
            yield f"{name} has no SHA-256"
        if not any(_is_address(each) for each in package.get("externalRefs", [])):
            yield f"{name} has no package URL"


def _is_address(reference: dict[str, str]) -> bool:
    kind = reference.get("referenceCategory"), reference.get("referenceType")
    return kind == ("PACKAGE-MANAGER", "purl") and bool(_PURL.fullmatch(reference.get("referenceLocator", "")))


def _licences(document: dict[str, Any]) -> Iterator[str]:
    explained = {each["licenseId"] for each in document.get("hasExtractedLicensingInfos", []) if each["extractedText"]}
    for package in document.get("packages", []):
        expression = package.get("licenseDeclared", "")
        if expression.count("(") != expression.count(")"):
            yield f"{package['SPDXID']}: {expression} has unpaired brackets"
        for word in re.split(r"\s+", expression.replace("(", " ").replace(")", " ").strip()):
            if word not in {"AND", "OR", "WITH"} and not _WORD.fullmatch(word):
                yield f"{package['SPDXID']}: {word} is no licence"
            if word.startswith("LicenseRef-") and word not in explained:
                yield f"{word} is not explained"


def _relationships(document: dict[str, Any]) -> Iterator[str]:
    known = {"SPDXRef-DOCUMENT", *(package.get("SPDXID") for package in document.get("packages", []))}
    reached = {"SPDXRef-DOCUMENT"}
    for each in document.get("relationships", []):
        ends = {each["spdxElementId"], each["relatedSpdxElement"]}
        yield from (f"a relationship names {end}, which is not there" for end in ends - known)
        reached |= ends
    if not any(each["relationshipType"] == "DESCRIBES" for each in document.get("relationships", [])):
        yield "the document describes nothing"
    yield from (f"{each} belongs to nothing" for each in known - reached)
