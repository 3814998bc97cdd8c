"""The API server lets pods into pools as `spec.access` says, whatever is in the index and whoever asks."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.rules.pool_access import PodCreation, admits
from integration.access.env import ACCOUNTS, NAMESPACES, AccessEnv, container, pod, pool

USERS = ("alice", "bob", "a\\nb", "namespace research", "système:é")
GROUPS = ("ml-leads", "user alice", "a b")
LABELS = (("team", "ml"), ("team", "vision"), ("tier", "gold"), ("tier", ""), ("tier", "a b"), ("team", "ml,vision"))
RESOURCES = ("gpu.deckhouse.io/{}", "gpu.example.com/{}", "example.org/own_{}.x")

_values = st.lists(st.sampled_from([value for _key, value in LABELS]), min_size=1, max_size=3, unique=True)
_keys = st.sampled_from(["team", "tier", "kubernetes.io/metadata.name", "absent"])
_requirements = st.one_of(
    st.builds(
        lambda key, op, values: {"key": key, "operator": op, "values": values},
        _keys,
        st.sampled_from(["In", "NotIn"]),
        _values,
    ),
    st.builds(lambda key, op: {"key": key, "operator": op}, _keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
_selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["ml", "gold", ""])),
        "matchExpressions": st.lists(_requirements, max_size=2),
    },
)


def _some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True)


_accesses = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "namespaces": _some(tuple(NAMESPACES)),
        "namespaceSelector": _selectors,
        "serviceAccounts": st.lists(
            st.fixed_dictionaries({"namespace": st.sampled_from(list(NAMESPACES)), "name": st.sampled_from(ACCOUNTS)}),
            max_size=2,
        ),
        "users": _some((*USERS, "x\nuser alice")),
        "groups": _some((*GROUPS, "x\nnamespace plain")),
    },
)


@st.composite
def _pools(draw: st.DrawFn) -> list[GPUPool]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        spec: dict[str, Any] = {"resource": {"name": draw(st.sampled_from(RESOURCES)).format(f"p{number}")}}
        if access := draw(_accesses):
            spec["access"] = access
        if draw(st.booleans()):
            layout = [{"profile": "1g.10gb", "count": 2}, {"profile": "2g.20gb", "count": 1}]
            spec["allocation"] = {"mode": "MIG", "mig": {"layout": layout}}
        made.append(pool(f"p{number}", **spec))
    return made


_creations = st.builds(
    lambda namespace, account, user, groups: PodCreation(
        namespace=namespace,
        namespace_labels={**NAMESPACES[namespace], "kubernetes.io/metadata.name": namespace},
        service_account=account,
        user=user,
        groups=tuple(groups),
    ),
    st.sampled_from(list(NAMESPACES)),
    st.sampled_from(ACCOUNTS),
    st.sampled_from(USERS),
    _some(GROUPS),
)


@settings(max_examples=60)
@given(data=st.data())
def test_the_api_server_decides_as_the_rule_does(access: AccessEnv, data: st.DataObject) -> None:
    pools = data.draw(_pools())
    access.pools(pools)
    names = [name for each in pools for name in each.resource_names]
    for creation in data.draw(st.lists(_creations, min_size=4, max_size=10)):
        asked = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        wanted = all(
            admits(each.spec.access, creation) for each in pools if any(name in each.resource_names for name in asked)
        )
        first, *others = (container(f"c{number}", {name: "1"}, restartPolicy=None) for number, name in enumerate(asked))
        body = pod(serviceAccountName=creation.service_account, containers=[first], initContainers=others)
        answer = access.create(creation.namespace, body, user=creation.user, groups=creation.groups)
        assert answer.admitted is wanted, answer
        assert answer.status in {201, 403}
        assert "expression" not in answer.message
