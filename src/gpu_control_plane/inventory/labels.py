"""The labels of a GPUDevice, which approval selectors and `kubectl get -l` choose by.

Each of them is always there, so that nobody else comes to own one: what is not known is called `unknown`.
"""

import hashlib
import re
from typing import Final

from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Label

UNKNOWN: Final = "unknown"

_MOST: Final = 63
_DIGEST: Final = 8


def device_labels(node: str, card: Hardware | None) -> dict[str, str]:
    return {
        Label.NODE.value: label_value(node),
        Label.VENDOR.value: label_value(card.vendor if card else ""),
        Label.PRODUCT.value: label_value(card.product if card else ""),
        Label.ARCHITECTURE.value: label_value((card.architecture if card else None) or ""),
    }


def label_value(text: str) -> str:
    """`NVIDIA H200` as `NVIDIA-H200`: a valid label value. A long text is cut, and a digest keeps it unmistakable."""
    value = _ends(re.sub(r"[^A-Za-z0-9_.-]+", "-", text))
    if len(value) > _MOST:
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
        value = f"{_ends(value[: _MOST - _DIGEST - 1])}-{digest}"
    return value or UNKNOWN


def _ends(value: str) -> str:
    return value.strip("-_.")
