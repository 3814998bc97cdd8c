"""Scripts, styles and pictures, each under a URL with a digest of its content: browsers keep them for ever, and a new
release is a new URL."""

import hashlib
import mimetypes
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.console.errors import NoSuchThing

FOLDER: Final = Path(__file__).parent / "static"
_DIGITS: Final = 12
_TYPES: Final = {".woff2": "font/woff2", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _File(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    url: str


class StaticFiles:
    """All files of the folder, read once."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
        self._by_path = {path: _read(path, file) for path, file in found.items()}
        self._by_url = {file.url: file for file in self._by_path.values()}

    def url(self, path: str) -> str:
        """The URL of a file, by its path in the folder; `KeyError` for a file that is not there."""
        return self._by_path[path].url

    async def serve(self, request: Request) -> Response:
        file = self._by_url.get(request.url.path)
        if file is None:
            raise NoSuchThing("There is no such file.")
        return Response(
            file.content,
            media_type=file.media_type,
            headers={"Cache-Control": "public, max-age=31536000, immutable", "ETag": f'"{file.url.split("/")[2]}"'},
        )


def _read(path: str, file: Path) -> _File:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
    media_type = _TYPES.get(file.suffix) or mimetypes.guess_type(path)[0] or "text/plain"
    return _File(content, media_type, f"/static/{digest}/{path}")
