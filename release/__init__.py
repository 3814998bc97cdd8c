"""Makes a release: every artifact that users install from, in one folder, the same bytes from the same commit."""
