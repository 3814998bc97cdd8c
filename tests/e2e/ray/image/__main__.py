"""`python -m e2e.ray.image`: makes the image unless it is in the cache, and says where it is. Without it tests are
skipped, so that failing to make it counts only in CI, or with `required`. With `lock`, records its parts anew.
"""

import os
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
            sys.stdout.write(f"{prepare(this_platform().arch, progress)}\n")
    except (ImageError, LocalError) as error:
        sys.stderr.write(f"error: {error}\nThere is no image with Ray: tests and pages that need one go without.\n")
        return 1 if arguments or os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
