"""The admission policies that keep pods out of pools they may not use: CEL that reads the index of `access_index`.

A ValidatingAdmissionPolicy holds while every program of ours is down. It has one ConfigMap as its parameter: a kind
that is always there, so that nothing can lock a cluster out, and one object, so that the cost does not grow with the
number of pools. A resource of ours that is not in the index is refused: no pod gets past before its pool is guarded.

The chart and the local cluster install what is made here. Only functions of CEL that Kubernetes 1.32 has are used.
"""

from itertools import pairwise
from typing import Final

from gpu_control_plane.api.names import GROUP, USE
from gpu_control_plane.rules.access_index import EVERY, INDEX_NAME
from gpu_control_plane.rules.admission_policy import (
    Manifest,
    asks_for_an_extended_resource,
    binding,
    containers,
    policy,
    validation,
)

POD_ACCESS: Final = INDEX_NAME
WORKLOAD_ACCESS: Final = "gpu-workload-access"

_POD_SPEC: Final = "object.spec"
_TEMPLATE_SPEC: Final = (
    "(request.resource.resource == 'cronjobs' ? dyn(object).spec.jobTemplate.spec.template.spec"
    " : dyn(object).spec.template.spec)"
)
_POD_RULES: Final = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
_WORKLOAD_RULES: Final = [
    {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": resources,
    }
    for group, resources in (
        ("apps", ["deployments", "statefulsets", "daemonsets", "replicasets"]),
        ("batch", ["jobs", "cronjobs"]),
    )
]
_INDEX_KIND: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
_MAX_NAME: Final = 253


def access_policies(namespace: str) -> list[Manifest]:
    """The policies about access to pools, each with its binding. The index is in `namespace`."""
    index = _index(namespace)
    return [
        policy(
            POD_ACCESS,
            rules=_POD_RULES,
            conditions=[asks_for_an_extended_resource(_POD_SPEC)],
            variables={**_who(_POD_SPEC), **_what(_POD_SPEC, _ADMITS_POD)},
            validations=[
                validation("variables.unknown.size() == 0", f"'The pod asks for ' + {_UNKNOWN}"),
                validation(
                    f"variables.refused.all(name, {_may_use(_ACCOUNT_CHECK)} || {_may_use(_REQUESTER_CHECK)})",
                    f"""'The pod asks for ' + {_REFUSED} + ' neither the namespace ' + request.namespace"""
                    f""" + ({_BY_CONTROLLER} ? {_NOR_ACCOUNT}"""
                    """ : ', nor the service account ' + variables.account"""
                    """ + ', nor ' + variables.shownUser + ', who creates the pod.') + """
                    f"{_WAY_IN}",
                ),
            ],
            paramKind=_INDEX_KIND,
        ),
        binding(POD_ACCESS, ["Deny"], paramRef=index),
        policy(
            WORKLOAD_ACCESS,
            rules=_WORKLOAD_RULES,
            conditions=[asks_for_an_extended_resource(_TEMPLATE_SPEC)],
            variables={**_who(_TEMPLATE_SPEC), **_what(_TEMPLATE_SPEC, _ADMITS_WORKLOAD)},
            validations=[
                validation("variables.unknown.size() == 0", f"'Its pods would be refused: they ask for ' + {_UNKNOWN}"),
                validation(
                    f"variables.refused.all(name, {_may_use(_ACCOUNT_CHECK)})",
                    f"""'Its pods would be refused: they ask for ' + {_REFUSED} + ' neither the namespace '"""
                    f""" + request.namespace + {_NOR_ACCOUNT} + {_WAY_IN}""",
                ),
            ],
            paramKind=_INDEX_KIND,
        ),
        binding(WORKLOAD_ACCESS, ["Warn"], paramRef=index),
    ]


def index_manifest(namespace: str) -> Manifest:
    """The ConfigMap before there is any pool."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": INDEX_NAME, "namespace": namespace},
    }


def _index(namespace: str) -> Manifest:
    """`Allow` concerns a missing ConfigMap only: with `Deny`, deleting it would keep every pod out of the cluster."""
    return {"name": INDEX_NAME, "namespace": namespace, "parameterNotFoundAction": "Allow"}


def _who(pod_spec: str) -> dict[str, str]:
    named = f"{pod_spec}.?serviceAccountName.orValue('')"
    return {
        "account": f"{named} == '' ? 'default' : {named}",
        "user": _escaped("request.userInfo.?username.orValue('')"),
        "shownUser": f"variables.user.size() > {_MAX_NAME} ? variables.user.substring(0, {_MAX_NAME}) + '…'"
        " : variables.user",
        "labels": "namespaceObject.metadata.?labels.orValue({})",
        "index": "params.?data.orValue({})",
    }


def _what(pod_spec: str, admits: str) -> dict[str, str]:
    """Names of resources hold no spaces, so a list of lists is made one by joining and splitting.

    CEL of Kubernetes 1.32 cannot make a list distinct. Each step takes the first name out of it; more than four pools
    in one pod are judged as well, only perhaps more than once.
    """
    steps = ("named", "afterFirst", "afterSecond", "afterThird")
    firsts = (f"(variables.{each}.size() > 0 ? [variables.{each}[0]] : [])" for each in steps[:-1])
    return {
        "named": f"({containers(pod_spec)}).map(c, c.?resources.?limits.orValue({{}}).map(name,"
        f" name.contains('/') && (name.startsWith('{GROUP}/') || {_key('name')} in variables.index)"
        " && quantity(string(c.resources.limits[name])).isGreaterThan(quantity('0')), name).join(' '))"
        ".join(' ').split(' ').filter(name, name != '')",
        **{rest: f"variables.{before}.filter(name, name != variables.{before}[0])" for before, rest in pairwise(steps)},
        "asked": " + ".join((*firsts, f"variables.{steps[-1]}")),
        "unknown": f"variables.asked.filter(name, !({_key('name')} in variables.index))",
        "refused": f"variables.asked.filter(name, {_key('name')} in variables.index"
        rf" && ![variables.index[{_key('name')}].split('\n')].exists(lines, {admits}))",
    }


def _key(name: str) -> str:
    return f"{name}.replace('/', '_')"


def _escaped(name: str) -> str:
    return rf"{name}.replace('\\', '\\\\').replace('\n', '\\n')"


def _pool_of(name: str) -> str:
    return rf"variables.index[{_key(name)}].split('\n', 2)[0].substring({len('pool ')})"


def _may_use(check: str) -> str:
    """The verb is asked for cluster-wide: in a namespace, whoever has every right there would have every pool."""
    return f"{check}.group('{GROUP}').resource('gpupools').name({_pool_of('name')}).check('{USE}').allowed()"


_ACCOUNT_CHECK: Final = "authorizer.serviceAccount(request.namespace, variables.account)"
_REQUESTER_CHECK: Final = "authorizer"

_SELECTED: Final = (
    "[lines.filter(line, line.startsWith('selector ')).map(line, line.split(' '))].exists(selector,"
    " selector.size() > 0 && selector.all(part,"
    f" part[1] == '{EVERY}'"
    " || (part[1] == 'In' && part[2] in variables.labels && variables.labels[part[2]] in part[3].split(','))"
    " || (part[1] == 'NotIn' && !(part[2] in variables.labels && variables.labels[part[2]] in part[3].split(',')))"
    " || (part[1] == 'Exists' && part[2] in variables.labels)"
    " || (part[1] == 'DoesNotExist' && !(part[2] in variables.labels))))"
)
_ADMITS_WORKLOAD: Final = (
    "'namespace ' + request.namespace in lines"
    " || 'account ' + request.namespace + '/' + variables.account in lines"
    f" || {_SELECTED}"
)
_ADMITS_POD: Final = (
    f"{_ADMITS_WORKLOAD} || 'user ' + variables.user in lines"
    " || [lines.filter(line, line.startsWith('group '))].exists(admitted,"
    f" request.userInfo.?groups.orValue([]).exists(group, 'group ' + {_escaped('group')} in admitted))"
)
"""Over the lines of an entry: for CEL's accounts, looking in a list costs its length, but in a text its size times that
of what is looked for, and the longest lists would not be affordable."""

_ACCOUNTS: Final = "system:serviceaccount:"
_BY_CONTROLLER: Final = (
    f"variables.user.startsWith('{_ACCOUNTS}') && !variables.user.startsWith('{_ACCOUNTS}' + request.namespace + ':')"
)
"""An account of another namespace creates pods for others. To name it would let in whoever has it create some."""
_NOR_ACCOUNT: Final = (
    "' nor the service account ' + variables.account"
    " + '. Users and groups do not count here, since a controller creates the pods.'"
)
_REFUSED: Final = (
    "variables.refused.join(' and ') + (variables.refused.size() == 1 ? ', and the GPU pool '"
    f" + {_pool_of('variables.refused[0]')} : ', and at least one of these GPU pools') + ' admits'"
)
_WAY_IN: Final = (
    f"' An administrator can name one of them in spec.access of the GPUPool ' + {_pool_of('variables.refused[0]')}"
    f" + ', or grant the RBAC verb {USE} on it.'"
)
_UNKNOWN: Final = (
    "variables.unknown[0] + ', which no GPU pool offers. What there is: kubectl get gpupools -o wide."
    " A pool that was just made can be used in a moment.'"
)
