"""`python -m e2e.ray.image`: makes the image unless it is in the cache; with `lock`, records its parts anew."""

import sys

from images.errors import ImageError

from e2e.ray.image.recipe import lock, prepare
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Lines


def main(arguments: list[str]) -> int:
    progress = Lines(sys.stderr)
    try:
        if arguments == ["lock"]:
            lock(progress)
        else:
            prepare(this_platform().arch, progress)
    except (ImageError, LocalError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
