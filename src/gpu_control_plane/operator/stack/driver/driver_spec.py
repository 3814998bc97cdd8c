"""What a ClusterPolicy or an NVIDIADriver asks of a driver, in one form. Pure.

The two kinds have different names and different defaults for the same settings; after this there is no difference.
"""

from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.choices import KernelModuleType
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import (
    RDMA,
    DriverManager,
    EnvVar,
    ImageParts,
    KernelAddOn,
    Named,
    Probe,
    Resources,
    on,
)
from gpu_control_plane.api.nvidia.nvidiadriver import DriverType, NVIDIADriverSpec
from gpu_control_plane.operator.stack.render_input import RenderError

_DELAY_SECONDS: Final = 60
_PRECOMPILED_DELAY_SECONDS: Final = 5


class Licence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the licence of a vGPU driver comes from. A Secret takes precedence over a ConfigMap."""

    secret: str = ""
    config_map: str = ""
    token: bool = False
    """Whether it includes a token for NVIDIA's licence system."""


class DriverSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a driver. ConfigMaps and Secrets are given by name; an empty name means none."""

    image: ImageParts
    type: DriverType = DriverType.GPU
    image_from_environment: bool = False
    """Whether variables of the operator's environment name the images that this does not."""
    manager: DriverManager = DriverManager()
    precompiled: bool = False
    modules: KernelModuleType = KernelModuleType.AUTO
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    rdma: bool = False
    host_mofed: bool = False
    gds: KernelAddOn | None = None
    gdrcopy: KernelAddOn | None = None
    repositories: str = ""
    certificates: str = ""
    parameters: str = ""
    """Parameters of the kernel modules."""
    topology: str = ""
    licence: Licence = Licence()
    secret_env: str = ""
    resources: Resources | None = None
    args: tuple[str, ...] = ()
    """Arguments of the driver's container; none means those of the asset."""
    env: tuple[EnvVar, ...] = ()
    host_network: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """The Secrets without which its pods do not start."""
        return tuple(filter(None, (self.secret_env, self.licence.secret)))


def from_policy(policy: ClusterPolicySpec) -> DriverSpec:
    """The driver of a ClusterPolicy."""
    driver = policy.driver
    licence = driver.licensing_config
    return DriverSpec(
        image=driver,
        image_from_environment=True,
        manager=driver.manager,
        precompiled=_on(driver.use_precompiled),
        modules=driver.kernel_module_type,
        startup=driver.startup_probe,
        liveness=driver.liveness_probe,
        readiness=driver.readiness_probe,
        rdma=_rdma(driver.rdma),
        host_mofed=_rdma(driver.rdma) and driver.rdma is not None and _on(driver.rdma.use_host_mofed),
        gds=_add_on(policy.gds),
        gdrcopy=_add_on(policy.gdrcopy),
        repositories=driver.repo_config.config_map_name if driver.repo_config else "",
        certificates=_named(driver.cert_config),
        parameters=_named(driver.kernel_module_config),
        topology=driver.virtual_topology.config if driver.virtual_topology else "",
        licence=Licence(
            secret=licence.secret_name,
            config_map=licence.config_map_name,
            token=on(licence.nls_enabled, absent=False),
        )
        if licence
        else Licence(),
        secret_env=driver.secret_env,
        resources=driver.resources,
        args=driver.args,
        env=driver.env,
        host_network=_on(driver.host_network),
    )


def from_driver(spec: NVIDIADriverSpec) -> DriverSpec:
    """The driver of an NVIDIADriver."""
    licence = spec.licensing_config
    precompiled = _on(spec.use_precompiled)
    return DriverSpec(
        image=spec,
        type=spec.driver_type,
        manager=spec.manager,
        precompiled=precompiled,
        modules=spec.kernel_module_type,
        startup=spec.startup_probe or _default_startup_probe(precompiled=precompiled),
        rdma=_rdma(spec.rdma),
        host_mofed=_rdma(spec.rdma) and spec.rdma is not None and _on(spec.rdma.use_host_mofed),
        gds=_add_on(spec.gds),
        gdrcopy=_add_on(spec.gdrcopy),
        repositories=_named(spec.repo_config),
        certificates=_named(spec.cert_config),
        parameters=_named(spec.kernel_module_config),
        topology=_named(spec.virtual_topology_config),
        licence=Licence(secret=licence.secret_name, config_map=licence.name, token=on(licence.nls_enabled, absent=True))
        if licence
        else Licence(),
        secret_env=spec.secret_env,
        resources=spec.resources,
        args=("init", *spec.args) if spec.args else (),
        env=spec.env,
        host_network=_on(spec.host_network),
    )


def check(driver_spec: DriverSpec) -> None:
    """Refuse what no driver image can do: modules beside a precompiled driver would have to be built."""
    add_ons = [name for name, held in (("gds", driver_spec.gds), ("gdrcopy", driver_spec.gdrcopy)) if held is not None]
    if driver_spec.precompiled and add_ons:
        raise RenderError(
            f"{' and '.join(add_ons)} cannot be loaded beside a precompiled driver:"
            f" switch {' and '.join(add_ons)} or usePrecompiled off"
        )


def _default_startup_probe(*, precompiled: bool) -> Probe:
    """The start-up probe of an NVIDIADriver that has none. Precompiled modules load sooner, so they are probed
    earlier."""
    return Probe(
        initial_delay_seconds=_PRECOMPILED_DELAY_SECONDS if precompiled else _DELAY_SECONDS,
        timeout_seconds=60,
        period_seconds=10,
        success_threshold=1,
        failure_threshold=120,
    )


def _on(switch: bool | None) -> bool:
    return on(switch, absent=False)


def _named(config: Named | None) -> str:
    return config.name if config else ""


def _rdma(rdma: RDMA | None) -> bool:
    return rdma is not None and _on(rdma.enabled)


def _add_on(add_on: KernelAddOn | None) -> KernelAddOn | None:
    return add_on if add_on is not None and _on(add_on.enabled) else None
