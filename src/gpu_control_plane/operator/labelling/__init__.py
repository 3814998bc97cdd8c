"""Labels of nodes: which operands of the software stack go where."""

from gpu_control_plane.operator.labelling.book import LabelBook, Policies
from gpu_control_plane.operator.labelling.controller import Labelling, build_labelling
from gpu_control_plane.operator.labelling.decide import (
    Change,
    HostDriver,
    OwnerWish,
    Report,
    Subject,
    Wish,
    wish_of,
)
from gpu_control_plane.operator.labelling.removal import clean_nodes
from gpu_control_plane.operator.labelling.report import host_driver, report_of

__all__ = [
    "Change",
    "HostDriver",
    "LabelBook",
    "Labelling",
    "OwnerWish",
    "Policies",
    "Report",
    "Subject",
    "Wish",
    "build_labelling",
    "clean_nodes",
    "host_driver",
    "report_of",
    "wish_of",
]
