"""What Ray Serve serves in tests. Pods get it from a ConfigMap."""

import os
import time

from ray import serve  # type: ignore[import-not-found]


class Answer:
    """Answers with the word it was configured with, and with the cluster in which it runs."""

    def __init__(self) -> None:
        self._word = ""
        # A new copy takes a moment, as a model that is loaded does.
        time.sleep(float(os.environ.get("DEMO_LOADING_SECONDS", "0")))

    def reconfigure(self, config: dict[str, str]) -> None:
        self._word = config["word"]

    def __call__(self) -> str:
        return f"{self._word} {os.environ['RAY_CLUSTER_NAME']}"


app = serve.deployment(Answer).bind()
