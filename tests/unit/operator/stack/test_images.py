"""Which image an operand runs: the published rules, row by row, and what half a name leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.fields import ImageParts
from gpu_control_plane.operator.stack.images import (
    ImageNotNamed,
    image_of,
    precompiled_image,
    pull_policy,
    system_image,
)

DRIVER = ImageParts(repository="nvcr.io/nvidia", image="driver", version="595.91.07")
ENVIRONMENT = {"DRIVER_IMAGE": "registry.example/from-environment:1"}


def _image(parts: ImageParts, *, fallback: str = "DRIVER_IMAGE", environment: dict[str, str] | None = None) -> str:
    return image_of(parts, fallback=fallback, what="the driver", environment=environment or {})


@pytest.mark.parametrize(
    ("parts", "image"),
    [
        (DRIVER, "nvcr.io/nvidia/driver:595.91.07"),
        (
            ImageParts(repository="nvcr.io/nvidia", image="driver", version="sha256:abc"),
            "nvcr.io/nvidia/driver@sha256:abc",
        ),
        (ImageParts(image="x/y@sha256:abc"), "x/y@sha256:abc"),
        (ImageParts(image="x/y:1"), "x/y:1"),
        (
            ImageParts(repository="registry.example:5000/a", image="b", version="1"),
            "registry.example:5000/a/b:1",
        ),
    ],
)
def test_an_image_is_named_by_its_parts_or_as_a_whole(parts: ImageParts, image: str) -> None:
    assert _image(parts) == image
    assert _image(parts, environment=ENVIRONMENT) == image


def test_the_environment_names_an_image_of_which_the_spec_says_nothing() -> None:
    assert _image(ImageParts(), environment=ENVIRONMENT) == "registry.example/from-environment:1"


@pytest.mark.parametrize("environment", [{}, {"DRIVER_IMAGE": ""}, {"OTHER_IMAGE": "x"}])
def test_without_any_name_the_error_says_where_one_could_come_from(environment: dict[str, str]) -> None:
    with pytest.raises(ImageNotNamed, match=r"the driver.*DRIVER_IMAGE.*set repository, image and version"):
        _image(ImageParts(), environment=environment)


def test_where_no_variable_could_help_none_is_named() -> None:
    with pytest.raises(ImageNotNamed) as caught:
        _image(ImageParts(), fallback="", environment=ENVIRONMENT)
    assert "variable" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        (ImageParts(image="driver", version="1"), "lacks repository"),
        (ImageParts(repository="a", version="1"), "lacks image"),
        (ImageParts(repository="a", image="driver"), "lacks version"),
        (ImageParts(version="1"), "lacks repository and image"),
        (ImageParts(repository="a"), "lacks image and version"),
    ],
)
def test_half_a_name_is_an_error_even_if_the_environment_has_a_whole_one(parts: ImageParts, missing: str) -> None:
    with pytest.raises(ImageNotNamed, match=missing):
        _image(parts, environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("image", "tag", "result"),
    [
        ("nvcr.io/nvidia/driver:595.91.07", "ubuntu24.04", "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"),
        ("nvcr.io/nvidia/driver:595.91.07", "rhel9", "nvcr.io/nvidia/driver:595.91.07-rhel9"),
        ("nvcr.io/nvidia/driver@sha256:abc", "ubuntu24.04", "nvcr.io/nvidia/driver@sha256:abc"),
    ],
)
def test_a_tag_is_completed_by_the_system_and_a_digest_is_complete(image: str, tag: str, result: str) -> None:
    assert system_image(image, tag, what="the driver") == result


def test_precompiled_modules_are_for_one_kernel_and_one_system() -> None:
    image = precompiled_image("nvcr.io/nvidia/driver:595", "6.8.0-60-generic", "ubuntu24.04", what="the driver")
    assert image == "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"


def test_a_digest_cannot_be_precompiled_for_several_kernels() -> None:
    with pytest.raises(ImageNotNamed, match="give a version"):
        precompiled_image("nvcr.io/nvidia/driver@sha256:abc", "6.8.0-60-generic", "ubuntu24.04", what="the driver")


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("Always", "Always"),
        ("Never", "Never"),
        ("IfNotPresent", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("always", "IfNotPresent"),
        ("Sometimes", "IfNotPresent"),
    ],
)
def test_a_pull_policy_that_kubernetes_does_not_know_means_if_not_present(word: str, policy: str) -> None:
    assert pull_policy(word) == policy


_WORD = st.sampled_from(["", "a", "b", "sha256:0"])


@given(repository=_WORD, image=_WORD, version=_WORD, named=_WORD)
def test_there_is_a_whole_image_or_an_error(repository: str, image: str, version: str, named: str) -> None:
    parts = ImageParts(repository=repository, image=image, version=version)
    whole = all((repository, image, version)) or (not any((repository, version)) and bool(image or named))
    try:
        found = _image(parts, environment={"DRIVER_IMAGE": named})
    except ImageNotNamed:
        assert not whole
    else:
        assert whole
        assert all(part in found for part in (repository, image, version))
