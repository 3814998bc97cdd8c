"""Images that exist once for each operating system: its name completes their tag. Pure."""

from gpu_control_plane.operator.stack.images import for_system
from gpu_control_plane.operator.stack.render_input import CannotRender


def system_image(image: str, tag: str, *, what: str) -> str:
    """The image for a system; a digest says by itself which one it is for."""
    return for_system(versioned(image, what=what), tag)


def versioned(image: str, *, what: str) -> str:
    """An image with a tag or a digest. The stock policy names the vGPU manager's without: nobody may pass that on."""
    if ":" not in image.rpartition("/")[2]:
        raise CannotRender(f"{what}'s image {image} has no version: set repository, image and version")
    return image
