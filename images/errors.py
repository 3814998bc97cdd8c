"""What can go wrong while an image is made, each as a sentence that says what to do."""


class ImageError(Exception):
    """Root of the tree: the image could not be made."""


class PackageGone(ImageError):
    """Debian no longer serves a recorded package."""


class MirrorFailed(ImageError):
    """A mirror did not answer, or not with a file."""


class WrongContent(ImageError):
    """A file is not the one that was recorded."""
