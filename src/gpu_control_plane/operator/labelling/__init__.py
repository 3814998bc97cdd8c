"""Labels of nodes: which operands of the software stack go where."""

from gpu_control_plane.operator.labelling.controller import Labelling, build_labelling
from gpu_control_plane.operator.labelling.decide import OwnerWish, Subject, Wish, wish_of
from gpu_control_plane.operator.node_cleanup import clean_nodes

__all__ = ["Labelling", "OwnerWish", "Subject", "Wish", "build_labelling", "clean_nodes", "wish_of"]
