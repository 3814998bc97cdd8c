"""What can go wrong while a release is made, each as a sentence that says what to do."""


class ReleaseError(Exception):
    """The release could not be made."""
