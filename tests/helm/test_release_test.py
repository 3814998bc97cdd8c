"""`helm test` may read everything that it asks about, and finds that nothing runs where nothing runs.

Pods exist in name only here; where they run for real, in tests/e2e/chart, the same test passes.
"""

import pytest

from helm.installed import Installed


def test_it_may_read_what_it_asks_about_and_says_what_to_do(installed: Installed) -> None:
    with pytest.raises(AssertionError) as failed:
        installed.run_hook("test", {}, "--timeout=0", "--no-ask-webhook")  # no address of a pod leads anywhere here
    said = str(failed.value)
    assert "✓ The API server serves our kinds." in said
    assert "✗ Lease gpu-control-plane: No controller leads" in said
    assert "    fix: kubectl -n d8-gpu-operator logs" in said
    assert "✗ ValidatingWebhookConfiguration" in said
    assert "✓ Every node with a card has an agent that is ready." in said
    assert "could not be checked" not in said
    assert "forbidden" not in said.lower()
