"""What leaves a cluster in a support bundle has no secrets in it, and still says what is wrong."""

import random
import string
from typing import Any

import pytest

from gpu_control_plane.doctor.scrubbing import REMOVED, scrub_object, scrub_text

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkEifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"token {TOKEN} refused", TOKEN),
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("pull https://robot:hunter2@registry.example.com/x", "hunter2"),
        ("--registry-password=hunter2 --verbose", "hunter2"),
        ('{"apiKey": "hunter2", "name": "x"}', "hunter2"),
        ("NGC_API_KEY=nvapi-1234567890abcdef", "nvapi-1234567890abcdef"),
        ("found hf_abcdefghijklmno in the log", "hf_abcdefghijklmno"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----", "MHcCAQEE"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQEE cut off", "MHcCAQEE"),
        ("secret_access_key: abc/def+ghi", "abc/def+ghi"),
    ],
)
def test_what_looks_like_a_credential_is_removed_from_text(text: str, secret: str) -> None:
    scrubbed = scrub_text(text)
    assert secret not in scrubbed
    assert REMOVED in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "The agent of the node has been away for a while; pods keep their cards.",
        "XID 79 on 0000:18:00.0: GPU has fallen off the bus",
        "kubectl annotate gpudevice h200-1-0000-18-00-0 gpu.deckhouse.io/assignment=training",
        "level=info msg=leading lease=gpu-control-plane identity=controller-0",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert scrub_text(text) == text


def _secret(rng: random.Random) -> str:
    return "planted" + "".join(rng.choices(string.ascii_letters + string.digits, k=16))


def test_secrets_planted_anywhere_in_a_pod_are_gone() -> None:
    rng = random.Random(15)
    planted = [_secret(rng) for _ in range(8)]
    pod: dict[str, Any] = {
        "metadata": {
            "name": "agent-0",
            "managedFields": [{"manager": planted[0]}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": f'{{"data": "{planted[1]}"}}',
                "vault.example.com/token": planted[2],
                "gpu.deckhouse.io/assignment": "training",
            },
        },
        "spec": {
            "imagePullSecrets": [{"name": planted[3]}],
            "containers": [
                {
                    "name": "main",
                    "env": [
                        {"name": "PASSWORD", "value": planted[4]},
                        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                    "args": [f"--token={planted[5]}"],
                    "command": ["sh", "-c", f"curl -H 'Authorization: Bearer {planted[6]}'"],
                }
            ],
        },
        "status": {"message": f"pulling from https://u:{planted[7]}@registry failed"},
    }
    scrubbed = scrub_object({"initContainers": [pod], "more": (pod,), "pod": pod})
    text = repr(scrubbed)
    assert [word for word in planted if word in text] == []
    held = scrubbed["pod"]
    assert held["metadata"]["annotations"] == {"gpu.deckhouse.io/assignment": "training"}
    variables = held["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in variables] == ["PASSWORD", "FROM"]
    assert variables[1]["valueFrom"]["secretKeyRef"]["key"] == "k"
