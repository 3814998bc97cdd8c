"""The JSON API: the views and actions of the pages and of `kubectl gpu`, for programs."""
