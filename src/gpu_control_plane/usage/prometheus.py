"""Asks Prometheus: at an address, or behind the API server's proxy where a Service of it is found."""

from typing import ClassVar, Final, Protocol

import aiohttp
import msgspec

from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import ApiError, Forbidden, KubeError
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.usage.queries import Sample

_SECONDS: Final = 60.0
"""How long one question may take."""
_LABELS: Final = ("operated-prometheus=true", "app.kubernetes.io/name=prometheus", "app=prometheus")
"""Of Services of Prometheus: the Prometheus operator's own, the common charts', Deckhouse's."""
_PORTS: Final = ("web", "http-web", "http", "https", "prometheus")


class PrometheusError(KubeError):
    """Prometheus does not answer, or does not understand."""


class Prometheus(Protocol):
    """Something to ask."""

    where: str

    async def ask(self, expression: str) -> list[Sample]:
        """What the expression gives now."""
        ...


class _Port(msgspec.Struct, frozen=True, gc=False):
    port: int
    name: str = ""


class _ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    ports: tuple[_Port, ...] = ()


class Service(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Service", "services")

    spec: _ServiceSpec = _ServiceSpec()


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "0")


class _Data(msgspec.Struct, frozen=True):
    result: list[_Result] = []


class _Answer(msgspec.Struct, frozen=True):
    data: _Data = _Data()
    error: str = ""


class PrometheusAt:
    """Prometheus at an address."""

    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")

    async def ask(self, expression: str) -> list[Sample]:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(f"{self.where}/api/v1/query", data={"query": expression}) as answer,
            ):
                return _samples(await answer.read(), self.where)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PrometheusError(
                f"Prometheus at {self.where} does not answer: {str(error) or 'not in time'}. Is the address right?"
            ) from error


class PrometheusInCluster:
    """Prometheus behind a Service, which the API server passes questions on to."""

    def __init__(self, client: Client, namespace: str, name: str, port: _Port) -> None:
        self._client = client
        self.where = f"service {namespace}/{name}"
        scheme = "https:" if port.name == "https" else ""
        target = f"{scheme}{name}:{port.port}"
        self._path = Service.resource.path(namespace, target, "proxy/api/v1/query")

    async def ask(self, expression: str) -> list[Sample]:
        call = Call(method="GET", path=self._path, verb="get", resource="services/proxy", params={"query": expression})
        try:
            answer = await self._client.transport.send(call)
        except ApiError as error:
            raise PrometheusError(f"Prometheus behind {self.where} does not answer: {error}") from error
        return _samples(answer, self.where)


async def find_prometheus(client: Client) -> PrometheusInCluster | None:
    """The first Service of a Prometheus; None where there is none, or where Services may not be listed."""
    for labels in _LABELS:
        try:
            services = await client.list(Service, Selection(labels=labels))
        except Forbidden:
            return None
        for service in sorted(services, key=lambda each: str(each.key)):
            ports = {port.name: port for port in service.spec.ports}
            chosen = next((ports[name] for name in _PORTS if name in ports), None)
            if chosen is not None:
                return PrometheusInCluster(client, service.metadata.namespace or "", service.name, chosen)
    return None


def _samples(answer: bytes, where: str) -> list[Sample]:
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except msgspec.DecodeError as error:
        raise PrometheusError(f"what answers at {where} is no Prometheus: {error}") from error
    if found.error:
        raise PrometheusError(f"Prometheus at {where} does not understand: {found.error}")
    return [Sample(each.metric, float(each.value[1])) for each in found.data.result]
