"""Carries out the safe fixes. Each loses nothing, and does nothing where the cluster has changed meanwhile."""

import asyncio
from collections.abc import Sequence

import msgspec

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.doctor.findings import Finding, Mend, MendKind
from gpu_control_plane.installation import policies
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError, NotFound

_AT_ONCE = 16


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a safe fix."""

    check: str
    about: str
    done: bool
    sentence: str


def mendable(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that `--fix` can do something about."""
    return [finding for finding in findings if finding.mend is not None]


async def mend(client: Client, namespace: str, findings: Sequence[Finding]) -> list[Mended]:
    """Do what the findings ask for; our programs run in `namespace`. One that fails does not keep the others
    from being done."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(finding: Finding) -> Mended:
        assert finding.mend is not None  # noqa: S101 - `mendable` has chosen them
        async with limit:
            try:
                sentence = await _carry_out(client, namespace, finding.mend)
            except KubeError as error:
                return Mended(check=finding.check, about=finding.about, done=False, sentence=str(error))
            return Mended(check=finding.check, about=finding.about, done=True, sentence=sentence)

    return list(await asyncio.gather(*map(one, findings)))


async def _carry_out(client: Client, namespace: str, fix: Mend) -> str:
    match fix.kind:
        case MendKind.DELETE_FAILED_POD:
            return await _delete_failed_pod(client, fix)
        case MendKind.LABEL_NODE:
            label = {Label.GPU_PRESENT.value: "true"}
            await client.patch(Node, fix.target.name, {"metadata": {"uid": fix.uid, "labels": label}})
            return f"labelled {Label.GPU_PRESENT.value}=true"
        case MendKind.RESTORE_POLICY:
            await policies.restore(client, fix.target.name, namespace)
            return "installed as this release has it"
        case _:
            raise ValueError(f"no such fix: {fix.kind}")


async def _delete_failed_pod(client: Client, fix: Mend) -> str:
    try:
        pod = await client.get(Pod, fix.target.name, fix.target.namespace)
        if pod.metadata.uid != fix.uid or pod.active:
            return "another pod has its name by now: nothing to do"
        version = pod.metadata.resource_version
        await client.delete(Pod, fix.target.name, fix.target.namespace, uid=fix.uid, resource_version=version)
    except NotFound:
        return "it is gone already"
    return "deleted"
