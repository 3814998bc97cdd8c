"""An image with real Ray for tests: Debian's Python as in our own image, a shell, and Ray's wheels from PyPI."""
