"""A vendor that does not exist, as small as one can be: docs/adding-a-vendor.md shows it."""
