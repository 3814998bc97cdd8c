"""Which image an operand runs. Pure.

An image is named by its parts, by `image` alone, or by an environment variable of the operator's own process, in this
order. An incomplete name is an error: a guess might pull another image than the one that was meant.
"""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.nvidia.fields import ImageParts
from gpu_control_plane.operator.stack.render_input import RenderError

_DIGEST: Final = "sha256:"
_POLICIES: Final = frozenset({"Always", "Never", "IfNotPresent"})


class ImageNotNamed(RenderError):
    """No image can be named; the message says which part is missing."""


def image_of(parts: ImageParts, *, fallback: str = "", what: str, environment: Mapping[str, str]) -> str:
    """The full name of an image. `fallback` is the variable that names it when the spec does not."""
    if not parts.repository and not parts.version:
        if parts.image:
            return parts.image
        if named := environment.get(fallback, ""):
            return named
        variable = f", nor does the operator's environment variable {fallback}" if fallback else ""
        raise ImageNotNamed(f"the spec names no image for {what}{variable}: set repository, image and version")
    named_parts = {"repository": parts.repository, "image": parts.image, "version": parts.version}
    if missing := [name for name, value in named_parts.items() if not value]:
        raise ImageNotNamed(f"the image for {what} lacks {' and '.join(missing)}: set repository, image and version")
    joint = "@" if parts.version.startswith(_DIGEST) else ":"
    return f"{parts.repository}/{parts.image}{joint}{parts.version}"


def system_image(image: str, tag: str, *, what: str) -> str:
    """The image for one operating system, whose name completes the tag; a digest already says exactly which one it
    is."""
    _check_version(image, what)
    return image if _DIGEST in image else f"{image}-{tag}"


def precompiled_image(image: str, kernel: str, tag: str, *, what: str) -> str:
    """The image whose modules were built for one kernel."""
    _check_version(image, what)
    if _DIGEST in image:
        raise ImageNotNamed(
            f"{image} is a digest, but a precompiled driver needs an image for each kernel: give a version"
        )
    return f"{image}-{kernel}-{tag}"


def pull_policy(policy: str) -> str:
    return policy if policy in _POLICIES else "IfNotPresent"


def _check_version(image: str, what: str) -> None:
    """NVIDIA's stock policy names the vGPU manager's image without a tag: no image exists under such a name."""
    if ":" not in image.rpartition("/")[2]:
        raise ImageNotNamed(f"{what}'s image {image} has no version: set repository, image and version")
