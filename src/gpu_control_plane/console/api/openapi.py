"""The OpenAPI 3.1 document, from the table of endpoints and the types they answer with."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.console.api.endpoints import ENDPOINTS, PREFIX, Endpoint

_REF: Final = "#/components/schemas/{name}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not answered."""

    reason: str
    message: str


_PROBLEMS: Final = {
    "400": "The request is not understood.",
    "401": "There is no valid token or session.",
    "403": "RBAC does not allow it, or another site asked.",
    "404": "There is no such thing.",
    "429": "There were too many requests.",
    "503": "The cluster does not answer, so rights are not known.",
}


def openapi_document(endpoints: Sequence[Endpoint] = ENDPOINTS) -> dict[str, Any]:
    """The whole document; the same as long as the types are."""
    bodies = [each.body for each in endpoints if each.body is not None]
    types = [*(each.answer for each in endpoints), *bodies, Problem]
    schemas, components = msgspec.json.schema_components(types, schema_hook=_schema_of, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        operation = {
            "summary": each.about,
            "operationId": _operation_id(each),
            "parameters": _parameters(each),
            "responses": {
                "200": {"description": "Done.", "content": {"application/json": {"schema": schema_of[each.answer]}}},
                **{
                    code: {"description": about, "content": {"application/json": {"schema": schema_of[Problem]}}}
                    for code, about in _PROBLEMS.items()
                },
            },
        }
        if each.body is not None:
            operation["requestBody"] = {
                "required": True,
                "content": {kind: {"schema": schema_of[each.body]} for kind in each.body_types},
            }
        paths.setdefault(f"{PREFIX}{each.path}", {})[each.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GPU control plane console",
            "version": "v1",
            "description": "What the console's pages and `kubectl gpu` show and do. Fields are added, never renamed or"
            " removed. Answers are what RBAC lets the asker see.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of the cluster."}
            },
            "schemas": dict(sorted(components.items())),
        },
    }


def _schema_of(kind: type) -> dict[str, Any]:
    """Of what may be anything: a part of a spec."""
    if kind is object:
        return {"description": "Anything."}
    raise NotImplementedError


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    in_query = [
        {"name": each.name, "in": "query", "description": each.about, "schema": {"type": "string"}}
        for each in endpoint.query
    ]
    return in_path + in_query


def _operation_id(endpoint: Endpoint) -> str:
    words = [word for word in re.split(r"[/{}]", endpoint.path) if word]
    return "-".join([endpoint.method.lower(), *words])
