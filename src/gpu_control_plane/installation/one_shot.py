"""How programs without a loop of their own do one piece of work in a cluster, and how the chart's jobs end."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.config import load_config
from gpu_control_plane.kube.errors import KubeError


def run_in_cluster[T](kubeconfig: Path | None, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Do the work with a client of this kubeconfig's cluster. Errors are those of `kube.errors`."""

    async def connected() -> T:
        async with Client(load_config(kubeconfig)) as client:
            return await work(client)

    return asyncio.run(connected())


def run_job[T](kubeconfig: Path | None, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """The same for a job: where it fails, the sentence is the last line of the job's log, and its exit code is 1."""
    try:
        return run_in_cluster(kubeconfig, work)
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
