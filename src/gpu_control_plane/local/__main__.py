"""`python -m gpu_control_plane.local [--node [--services]] [--chart] [--monitoring]`: have programs in the cache.

Those of a local cluster, with `--node` also those of a real node, where one can run, with `--services` those by which
its pods reach services, too, with `--chart` also those that the tests of the Helm chart run, with `--monitoring`
those of the tests of dashboards. Progress goes to standard error.
"""

import sys

from gpu_control_plane.local import Component, LocalError, ensure_binaries
from gpu_control_plane.local.node.requirements import NodeImpossible, system_programs
from gpu_control_plane.local.progress import Lines
from gpu_control_plane.local.versions import MONITORING_RELEASES, NODE_PROGRAMS, SERVICE_PROGRAMS, TEST_RELEASES


def main(arguments: list[str]) -> int:
    programs, progress = [*Component, "kubectl"], Lines(sys.stderr)
    if "--node" in arguments:
        try:
            services = "--services" in arguments
            system_programs(services=services)
            programs += [*NODE_PROGRAMS, *(SERVICE_PROGRAMS if services else ())]
        except NodeImpossible as why:
            progress.note(f"Leaving out the programs of a real node. {why}")
    if "--chart" in arguments:
        programs += [program for release in TEST_RELEASES for program in release.programs]
    if "--monitoring" in arguments:
        programs += [program for release in MONITORING_RELEASES for program in release.programs]
    try:
        ensure_binaries(programs, progress)
    except LocalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
