"""`gpu-node`: the cards of one node, as they measure themselves."""

from typing import Final

from monitoring.grafana import Dashboard, Panel, PanelType, Query, Row, Unit, Variable
from monitoring.promql import AGENT, CARD, POOL_RESOURCES, by_card

from gpu_control_plane.agent.health import HOT_CELSIUS

_HERE: Final = 'Hostname=~"$node"'
_WHOLE: Final = f'{_HERE}, GPU_I_ID=""'
"""Readings of whole cards: instances of a card that is cut have their own."""
_LEGEND: Final = "{{Hostname}} {{gpu}}"


def _per_card(
    title: str, metric: str, unit: Unit, about: str, *, alerts: tuple[str, ...] = (), factor: str = ""
) -> Panel:
    """A reading of each card; it has several series when pods share it, all of the same value."""
    expr = f"{by_card(f'DCGM_FI_{metric}', _WHOLE)}{factor}"
    return Panel(title=title, queries=(Query(expr, _LEGEND),), unit=unit, about=about, alerts=alerts)


def _growth(
    title: str, metric: str, unit: Unit, about: str, *, alerts: tuple[str, ...] = (), factor: str = ""
) -> Panel:
    """How fast a counter of each card grows, in a second."""
    expr = f"max by ({CARD}) (rate(DCGM_FI_{metric}{{{_WHOLE}}}[$__rate_interval])){factor}"
    return Panel(title=title, queries=(Query(expr, _LEGEND),), unit=unit, about=about, alerts=alerts)


def _total(metric: str, legend: str) -> Query:
    return Query(f"sum by (Hostname) (max by ({CARD}) (DCGM_FI_DEV_{metric}{{{_HERE}}}))", f"{{{{Hostname}}}} {legend}")


def _memory(part: str) -> str:
    return f"sum by ({CARD}) (DCGM_FI_DEV_FB_{part}{{{_WHOLE}}})"


USE: Final = Row(
    "Use",
    (
        _per_card("Utilisation", "DEV_GPU_UTIL", Unit.PERCENT, "Share of time in which a program ran."),
        _per_card("Engine active", "PROF_GR_ENGINE_ACTIVE", Unit.SHARE, "From the Hopper generation on."),
        _per_card("Tensor cores active", "PROF_PIPE_TENSOR_ACTIVE", Unit.SHARE, "From the Hopper generation on."),
        Panel(
            title="Memory used",
            about="By programs, without what the driver keeps for itself.",
            queries=(Query(_memory("USED"), _LEGEND),),
            unit=Unit.MEBIBYTES,
        ),
        Panel(
            title="Share of memory used",
            about="Of what programs can have.",
            queries=(
                Query(
                    f"{_memory('USED')} / ({_memory('USED')} + sum by ({CARD}) (max by ({CARD}) "
                    f"(DCGM_FI_DEV_FB_FREE{{{_WHOLE}}})))",
                    _LEGEND,
                ),
            ),
            unit=Unit.SHARE,
        ),
        _per_card(
            "Memory interface busy",
            "DEV_MEM_COPY_UTIL",
            Unit.PERCENT,
            "Share of time in which memory was read or written.",
        ),
        _per_card(
            "PCIe sent", "PROF_PCIE_TX_BYTES", Unit.BYTES_PER_SECOND, "From the card to the host, headers included."
        ),
        _per_card(
            "PCIe received", "PROF_PCIE_RX_BYTES", Unit.BYTES_PER_SECOND, "From the host to the card, headers included."
        ),
        _growth(
            "NVLink, both ways",
            "DEV_NVLINK_BANDWIDTH_TOTAL",
            Unit.BYTES_PER_SECOND,
            "The card counts in KiB. Only cards with NVLink.",
            factor=" * 1024",
        ),
    ),
)

CONDITION: Final = Row(
    "Condition",
    (
        _per_card(
            "Temperature",
            "DEV_GPU_TEMP",
            Unit.CELSIUS,
            f"From {HOT_CELSIUS} °C on a card is out of service.",
            alerts=("GPUCardHeatingUp",),
        ),
        _per_card("Temperature of memory", "DEV_MEMORY_TEMP", Unit.CELSIUS, "Only cards that measure it."),
        _per_card("Power", "DEV_POWER_USAGE", Unit.WATTS, "What each card draws."),
        _per_card(
            "Clock of the processors",
            "DEV_SM_CLOCK",
            Unit.HERTZ,
            "Lower than usual under load: heat or power.",
            factor=" * 1e6",
        ),
        _growth(
            "Slowed down by heat",
            "DEV_THERMAL_VIOLATION",
            Unit.SHARE,
            "Share of time.",
            factor=" / 1e9",
            alerts=("GPUCardThrottledByHeat",),
        ),
        _growth("Slowed down by power", "DEV_POWER_VIOLATION", Unit.SHARE, "Share of time.", factor=" / 1e9"),
        Panel(
            title="Energy in the chosen time",
            about="All cards of each node together.",
            queries=(
                Query(
                    f"sum by (Hostname) (max by ({CARD}) "
                    f"(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_WHOLE}}}[$__range]))) / 1000",
                    "{{Hostname}}",
                ),
            ),
            unit=Unit.JOULES,
            look=PanelType.NUMBER,
        ),
        Panel(
            title="XID that stands",
            queries=(Query(f"max by ({CARD}) (DCGM_FI_DEV_XID_ERRORS{{{_HERE}}})", _LEGEND),),
            unit=Unit.CODE,
            about="0 for none. Goes back to 0 when the card is cleared.",
            alerts=("GPUHardwareXID", "GPUCardFaulted"),
        ),
        Panel(
            title="XIDs by code",
            queries=(Query(f"sum by (Hostname, gpu, xid) (DCGM_EXP_XID_ERRORS_COUNT{{{_HERE}}})", "Reports"),),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
            about="Since the agent started.",
            alerts=("GPUHardwareXID", "GPUApplicationXID"),
        ),
        Panel(
            title="Memory errors",
            queries=(
                _total("ECC_SBE_VOL_TOTAL", "corrected"),
                _total("ECC_DBE_VOL_TOTAL", "not corrected"),
            ),
            unit=Unit.COUNT,
            about="Since the driver was loaded.",
            alerts=("GPUMemoryErrorsRising", "GPUMemoryUncorrected"),
        ),
        Panel(
            title="Rows of memory replaced",
            about="In the whole life of the cards: in time, after an error, and in vain.",
            alerts=(
                "GPUMemoryRowsRemapped",
                "GPURowRemapFailed",
            ),
            queries=(
                _total("CORRECTABLE_REMAPPED_ROWS", "in time"),
                _total("UNCORRECTABLE_REMAPPED_ROWS", "after an error"),
                _total("ROW_REMAP_FAILURE", "failed"),
            ),
            unit=Unit.COUNT,
        ),
        _growth("PCIe retries", "DEV_PCIE_REPLAY_COUNTER", Unit.PER_SECOND, "More than a few: the slot, or the riser."),
    ),
)

OFFER: Final = Row(
    "What the node offers",
    (
        Panel(
            title="Units that the scheduler may hand out",
            about="Of each pool, as the node offers them to Kubernetes.",
            queries=(
                Query(
                    f'sum by (node, resource) (kube_node_status_allocatable{{node=~"$node", {POOL_RESOURCES}}})',
                    "{{node}} {{resource}}",
                ),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Units that pods ask for",
            about="Of each pool, by pods that are bound to the node.",
            queries=(
                Query(
                    f'sum by (node, resource) (kube_pod_container_resource_limits{{node=~"$node", {POOL_RESOURCES}}})',
                    "{{node}} {{resource}}",
                ),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Who has which card",
            about="A card that pods share is there for each of them.",
            queries=(
                Query(
                    f'max by (Hostname, gpu, modelName, namespace, pod) (DCGM_FI_DEV_GPU_UTIL{{{_HERE}, pod!=""}})',
                    "Utilisation",
                ),
            ),
            unit=Unit.PERCENT,
            look=PanelType.TABLE,
        ),
        Panel(
            title="The agent answers",
            about="1 for each chosen node whose agent can be asked.",
            alerts=(
                "GPUAgentDown",
                "GPUAgentPodsMissing",
            ),
            queries=(Query(f'max by (node) (up{{job="{AGENT}", node=~"$node"}})', "{{node}}"),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
        ),
        Panel(
            title="Pods the agent gave cards to",
            about="On each node.",
            queries=(
                Query('sum by (node) (rate(gpu_agent_allocations_total{node=~"$node"}[$__rate_interval]))', "{{node}}"),
            ),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Faults that the agent found",
            queries=(Query('sum by (node, reason) (gpu_agent_faults_total{node=~"$node"})', "{{node}} {{reason}}"),),
            unit=Unit.COUNT,
            about="Since the agent started.",
        ),
    ),
)

NODE: Final = Dashboard(
    name="gpu-node",
    title="GPU / Node",
    about="The cards of one node: use, temperature, power, errors, and who has them.",
    rows=(USE, CONDITION, OFFER),
    variables=(Variable("node", "DCGM_FI_DEV_GPU_TEMP", "Hostname", "Node", everything=False),),
    links=("gpu-inventory", "gpu-workloads", "gpu-ray"),
)
