"""What Ray Serve serves in tests. Pods get it from a ConfigMap."""

import os
import time

from ray import serve  # type: ignore[import-not-found]


class Answer:
    """Answers with the word it was configured with, and with the cluster in which it runs."""

    def __init__(self, loading_seconds: float = 0.0) -> None:
        self._word = ""
        time.sleep(loading_seconds)

    def reconfigure(self, config: dict[str, str]) -> None:
        self._word = config["word"]

    def __call__(self) -> str:
        return f"{self._word} {os.environ['RAY_CLUSTER_NAME']}"


_Answer = serve.deployment(Answer)
app = _Answer.bind()
slow_app = _Answer.bind(5.0)
"""The same as another code, which takes a while to load, as a model does."""
