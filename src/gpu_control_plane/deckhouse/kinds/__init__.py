"""The kinds of Deckhouse that a bring-up consists of, as types: the schema that all files are held to.

Written from Deckhouse's documentation, and only as far as a bring-up goes. Unknown fields are refused: a field that is
spelt wrongly would otherwise be dropped by the API server without a word.
"""

from gpu_control_plane.deckhouse.kinds.document import Document, Metadata

__all__ = ["Document", "Metadata"]
