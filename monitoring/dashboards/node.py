"""`gpu-node`: the cards of one node, as they measure themselves."""

from typing import Final

from monitoring.grafana import Dashboard, Look, Panel, Query, Row, Unit, Variable
from monitoring.promql import AGENT, CARD, POOL_RESOURCES

_HERE: Final = 'Hostname=~"$node"'
_WHOLE: Final = f'{_HERE}, GPU_I_ID=""'
"""Readings of whole cards: instances of a card that is cut have their own."""
_LEGEND: Final = "{{Hostname}} {{gpu}}"


def _per_card(title: str, metric: str, unit: Unit, *, factor: str = "", about: str = "") -> Panel:
    """A reading of each card; it has several series when pods share it, all of the same value."""
    expr = f"max by ({CARD}) (DCGM_FI_{metric}{{{_WHOLE}}}){factor}"
    return Panel(title=title, queries=(Query(expr, _LEGEND),), unit=unit, about=about)


def _growth(title: str, metric: str, unit: Unit, *, factor: str = "", about: str = "") -> Panel:
    """How fast a counter of each card grows, in a second."""
    expr = f"max by ({CARD}) (rate(DCGM_FI_{metric}{{{_WHOLE}}}[$__rate_interval])){factor}"
    return Panel(title=title, queries=(Query(expr, _LEGEND),), unit=unit, about=about)


def _total(metric: str, legend: str) -> Query:
    return Query(f"sum by (Hostname) (max by ({CARD}) (DCGM_FI_DEV_{metric}{{{_HERE}}}))", f"{{{{Hostname}}}} {legend}")


def _memory(part: str) -> str:
    return f"sum by ({CARD}) (DCGM_FI_DEV_FB_{part}{{{_WHOLE}}})"


USE: Final = Row(
    "Use",
    (
        _per_card("Utilisation", "DEV_GPU_UTIL", Unit.PERCENT, about="Share of time in which a program ran."),
        _per_card("Engine active", "PROF_GR_ENGINE_ACTIVE", Unit.SHARE, about="From the Hopper generation on."),
        _per_card("Tensor cores active", "PROF_PIPE_TENSOR_ACTIVE", Unit.SHARE, about="From the Hopper generation on."),
        Panel(title="Memory used", queries=(Query(_memory("USED"), _LEGEND),), unit=Unit.MEBIBYTES),
        Panel(
            title="Share of memory used",
            queries=(
                Query(
                    f"{_memory('USED')} / ({_memory('USED')} + sum by ({CARD}) (max by ({CARD}) "
                    f"(DCGM_FI_DEV_FB_FREE{{{_WHOLE}}})))",
                    _LEGEND,
                ),
            ),
            unit=Unit.SHARE,
        ),
        _per_card("Memory interface busy", "DEV_MEM_COPY_UTIL", Unit.PERCENT),
        _per_card("PCIe sent", "PROF_PCIE_TX_BYTES", Unit.BYTES_PER_SECOND),
        _per_card("PCIe received", "PROF_PCIE_RX_BYTES", Unit.BYTES_PER_SECOND),
        _growth(
            "NVLink, both ways",
            "DEV_NVLINK_BANDWIDTH_TOTAL",
            Unit.BYTES_PER_SECOND,
            factor=" * 1024",
            about="The card counts in KiB. Only cards with NVLink.",
        ),
    ),
)

CONDITION: Final = Row(
    "Condition",
    (
        _per_card("Temperature", "DEV_GPU_TEMP", Unit.CELSIUS),
        _per_card("Temperature of memory", "DEV_MEMORY_TEMP", Unit.CELSIUS),
        _per_card("Power", "DEV_POWER_USAGE", Unit.WATTS),
        _per_card("Clock of the processors", "DEV_SM_CLOCK", Unit.HERTZ, factor=" * 1e6"),
        _growth("Slowed down by heat", "DEV_THERMAL_VIOLATION", Unit.SHARE, factor=" / 1e9", about="Share of time."),
        _growth("Slowed down by power", "DEV_POWER_VIOLATION", Unit.SHARE, factor=" / 1e9", about="Share of time."),
        Panel(
            title="Energy in the chosen time",
            queries=(
                Query(
                    f"sum by (Hostname) (max by ({CARD}) "
                    f"(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_WHOLE}}}[$__range]))) / 1000",
                    "{{Hostname}}",
                ),
            ),
            unit=Unit.JOULES,
            look=Look.NUMBER,
        ),
        Panel(
            title="XID that stands",
            queries=(Query(f"max by ({CARD}) (DCGM_FI_DEV_XID_ERRORS{{{_HERE}}})", _LEGEND),),
            unit=Unit.CODE,
            about="0 for none. Goes back to 0 when the card is cleared.",
        ),
        Panel(
            title="XIDs by code",
            queries=(Query(f"sum by (Hostname, gpu, xid) (DCGM_EXP_XID_ERRORS_COUNT{{{_HERE}}})", "Reports"),),
            unit=Unit.COUNT,
            look=Look.TABLE,
            about="Since the agent started.",
        ),
        Panel(
            title="Memory errors",
            queries=(
                _total("ECC_SBE_VOL_TOTAL", "corrected"),
                _total("ECC_DBE_VOL_TOTAL", "not corrected"),
            ),
            unit=Unit.COUNT,
            about="Since the driver was loaded.",
        ),
        Panel(
            title="Rows of memory replaced",
            queries=(
                _total("CORRECTABLE_REMAPPED_ROWS", "in time"),
                _total("UNCORRECTABLE_REMAPPED_ROWS", "after an error"),
                _total("ROW_REMAP_FAILURE", "failed"),
            ),
            unit=Unit.COUNT,
        ),
        _growth("PCIe retries", "DEV_PCIE_REPLAY_COUNTER", Unit.PER_SECOND),
    ),
)

OFFER: Final = Row(
    "What the node offers",
    (
        Panel(
            title="Units that the scheduler may hand out",
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
            queries=(
                Query(
                    f'max by (Hostname, gpu, modelName, namespace, pod) (DCGM_FI_DEV_GPU_UTIL{{{_HERE}, pod!=""}})',
                    "Utilisation",
                ),
            ),
            unit=Unit.PERCENT,
            look=Look.TABLE,
        ),
        Panel(
            title="Agents that answer",
            queries=(Query(f'sum(up{{job="{AGENT}"}})', "agents"),),
            unit=Unit.COUNT,
            look=Look.NUMBER,
        ),
        Panel(
            title="Pods the agents gave cards to",
            queries=(Query("sum(rate(gpu_agent_allocations_total[$__rate_interval]))", "pods"),),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Faults that agents found",
            queries=(Query("sum by (reason) (gpu_agent_faults_total)", "{{reason}}"),),
            unit=Unit.COUNT,
            about="Since the agents started.",
        ),
    ),
)

NODE: Final = Dashboard(
    name="gpu-node",
    title="GPU / Node",
    about="The cards of one node: use, temperature, power, errors, and who has them.",
    rows=(USE, CONDITION, OFFER),
    variables=(Variable("node", "DCGM_FI_DEV_GPU_TEMP", "Hostname", "Node"),),
    links=("gpu-inventory", "gpu-workloads"),
)
