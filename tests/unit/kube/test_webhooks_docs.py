"""The webhook in the documentation works as it is printed there."""

import json
import re
from pathlib import Path
from typing import Any

from gpu_control_plane.kube.admission import API_VERSION, AdmissionResponse, parse_review

PAGE = Path(__file__).parents[3] / "docs" / "runtime-webhooks.md"


async def response(labels: dict[str, str]) -> AdmissionResponse:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(blocks[0], names)  # noqa: S102 - our own page
    request = {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "one", "labels": labels}}}
    review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}
    answer = await names["require_owner"](parse_review(json.dumps(review).encode(), names["ConfigMap"]))
    assert isinstance(answer, AdmissionResponse)
    return answer


async def test_the_printed_webhook_refuses_what_has_no_owner() -> None:
    assert (await response({})).message.startswith("A ConfigMap needs the label `owner`.")


async def test_the_printed_webhook_allows_what_has_one() -> None:
    assert (await response({"owner": "team-a"})).allowed
