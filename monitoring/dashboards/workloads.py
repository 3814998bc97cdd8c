"""`gpu-workloads`: who asks for cards, who has them, and what they do with them."""

from typing import Final

from monitoring.grafana import Dashboard, Panel, PanelType, Query, Row, Unit, Variable
from monitoring.promql import CARD, POOL_RESOURCES, pool

_THEIRS: Final = 'namespace=~"$namespace", pod!=""'
_ASKED: Final = f'kube_pod_container_resource_limits{{namespace=~"$namespace", {POOL_RESOURCES}}}'
_POD: Final = "{{namespace}}/{{pod}}"


def _phase(name: str) -> str:
    return f'max by (namespace, pod) (kube_pod_status_phase{{namespace=~"$namespace", phase="{name}"}}) == 1'


ASKING: Final = Row(
    "Asking",
    (
        Panel(
            title="Cards asked for by running pods",
            about="Units of pools; a pod may have a part of a card.",
            queries=(Query(f"sum({_ASKED} and on (namespace, pod) ({_phase('Running')}))", "cards"),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=6,
            height=4,
        ),
        Panel(
            title="Cards asked for by waiting pods",
            about="Units of pools that nobody could be given yet.",
            alerts=("GPUPoolCapacityLow",),
            queries=(Query(f"sum({_ASKED} and on (namespace, pod) ({_phase('Pending')}))", "cards", zero=True),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=6,
            height=4,
            red_from=1,
        ),
        Panel(
            title="Cards held and idle",
            queries=(
                Query(
                    f"sum(max by ({CARD}) (DCGM_FI_DEV_GPU_UTIL{{{_THEIRS}}}) < bool 1)",
                    "cards",
                    zero=True,
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=6,
            height=4,
            about="A pod has the card, and less than one percent of its time is used.",
        ),
        Panel(
            title="Units free",
            about="Units of pools that a pod could have now.",
            alerts=("GPUPoolCapacityLow",),
            queries=(Query(f"sum({pool('available', 'pool=~"$pool"')})", "cards"),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=6,
            height=4,
        ),
        Panel(
            title="Units asked for, by namespace",
            about="By pods that run or wait.",
            queries=(Query(f"sum by (namespace) ({_ASKED})", "{{namespace}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Units asked for, by resource",
            about="By pods that run or wait.",
            queries=(Query(f"sum by (resource) ({_ASKED})", "{{resource}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Pods that wait for cards",
            queries=(
                Query(
                    f"sum by (namespace, pod, resource) ({_ASKED} and on (namespace, pod) ({_phase('Pending')}))",
                    "Units",
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.TABLE,
            about="`kubectl events --for pod/NAME` says what each waits for.",
        ),
    ),
)

USING: Final = Row(
    "Using",
    (
        Panel(
            title="Utilisation, by pod",
            queries=(Query(f"avg by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{{{_THEIRS}}})", _POD),),
            unit=Unit.PERCENT,
            about="On average over the cards of the pod.",
        ),
        Panel(
            title="Memory used, by pod",
            about="On all cards of the pod.",
            queries=(Query(f"sum by (namespace, pod) (DCGM_FI_DEV_FB_USED{{{_THEIRS}}})", _POD),),
            unit=Unit.MEBIBYTES,
        ),
        Panel(
            title="Tensor cores active, by pod",
            about="On average over the cards of the pod. From the Hopper generation on.",
            queries=(Query(f"avg by (namespace, pod) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_THEIRS}}})", _POD),),
            unit=Unit.SHARE,
        ),
        Panel(
            title="Utilisation, by namespace",
            about="On average over its cards: who holds cards and does not use them.",
            queries=(Query(f"avg by (namespace) (DCGM_FI_DEV_GPU_UTIL{{{_THEIRS}}})", "{{namespace}}"),),
            unit=Unit.PERCENT,
        ),
        Panel(
            title="Power, by namespace",
            queries=(Query(f"sum by (namespace) (DCGM_FI_DEV_POWER_USAGE{{{_THEIRS}}})", "{{namespace}}"),),
            unit=Unit.WATTS,
            look=PanelType.STACKED,
            about="A card that pods share counts for each of them.",
        ),
        Panel(
            title="Cards held, by namespace",
            about="A card that pods of several namespaces share counts for each.",
            queries=(
                Query(
                    f"count by (namespace) (max by (namespace, {CARD}) (DCGM_FI_DEV_GPU_TEMP{{{_THEIRS}}}))",
                    "{{namespace}}",
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
        ),
        Panel(
            title="Pods and their cards",
            about="Which pod has which card, and how busy it is.",
            queries=(
                Query(
                    f"max by (namespace, pod, Hostname, gpu, modelName) (DCGM_FI_DEV_GPU_UTIL{{{_THEIRS}}})",
                    "Utilisation",
                ),
            ),
            unit=Unit.PERCENT,
            look=PanelType.TABLE,
            width=24,
        ),
    ),
)

WORKLOADS: Final = Dashboard(
    name="gpu-workloads",
    title="GPU / Workloads",
    about="Who asks for cards, who has them, and what they do with them.",
    rows=(ASKING, USING),
    variables=(
        Variable("namespace", "kube_pod_container_resource_limits", "namespace", "Namespace"),
        Variable("pool", "gpupool_capacity_total", "pool", "Pool"),
    ),
    links=("gpu-inventory", "gpu-node", "gpu-ray"),
)
