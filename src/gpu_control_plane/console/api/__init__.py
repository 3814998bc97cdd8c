"""The JSON API: the views and actions of the pages and of `kubectl gpu`, for programs. `/api/v1/openapi.json` has it all."""
