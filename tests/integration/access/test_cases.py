"""Every way to ask for a card, and around asking, with the exact sentence that the user reads."""

import pytest

from integration.access.cases import ACCESS, BYPASSES, POOLS, RETIRED, VERBS, WORKLOADS, Case
from integration.access.env import AccessEnv, grant

CASES = [*ACCESS, *WORKLOADS, *BYPASSES]


@pytest.fixture(scope="module")
def prepared(access: AccessEnv) -> AccessEnv:
    access.runtime_classes("nvidia", "nvidia-cdi", "gvisor")
    for pool, subjects in VERBS.items():
        grant(access, "use", subjects, pool)
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "dora"}
    grant(access, "bypass", [user, {"kind": "ServiceAccount", "namespace": "batch", "name": "trainer"}])
    owner = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "owner"}
    grant(access, "*", [owner], namespace="plain")
    access.pools(POOLS, RETIRED)
    return access


def test_there_are_at_least_eighty() -> None:
    assert len({case.what for case in CASES}) == len(CASES) >= 80


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_user_reads(prepared: AccessEnv, case: Case) -> None:
    answer = prepared.create(case.where, case.body, path=case.path, user=case.who, groups=case.groups)
    if case.says is None:
        assert answer.admitted, answer.message
    else:
        assert (answer.status, answer.reason, answer.sentence) == (403, "Forbidden", case.says)
    warnings = [one for one in answer.warnings if "ValidatingAdmissionPolicy" in one]
    assert [one.partition("': ")[2].removesuffix('"').replace('\\"', '"') for one in warnings] == (
        [case.warns] if case.warns else []
    )
