"""The container image: Debian's Python, the locked wheels and our package, made without a container engine.

What goes in is recorded (`debian-<arch>.lock.json`, `uv.lock`), so what comes out is the same bytes every time.
`docs/image.md` explains how.
"""
