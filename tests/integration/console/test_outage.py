"""Without the API server nobody's identity and rights are known, so nothing is shown."""

import asyncio
import signal
from collections.abc import Callable

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component
from integration.console.env import ALL, person, running_console
from integration.console.objects import a_card


async def test_an_outage_fails_closed(own_api_server: Callable[..., Cluster]) -> None:
    cluster = await asyncio.to_thread(own_api_server)
    await asyncio.to_thread(install_crds, cluster.kubeconfig)
    async with Client(load_config(cluster.kubeconfig)) as client:
        admin, other = await person(client, ALL), await person(client, ALL)
        card = await a_card(client)
    async with running_console(cluster.kubeconfig) as console, console.browser(admin.token) as browser:
        await asyncio.to_thread(cluster.stop_component, Component.APISERVER, signal.SIGKILL)
        # Signed in, but nobody can say what for.
        async with browser.get("/cards") as page:
            assert page.status == 503
            assert card.name not in await page.text()
        # Nobody can say who this is.
        async with console.program() as program, program.get("/", headers=other.header) as page:
            assert page.status == 503
            assert page.headers["Retry-After"]
        form = {"token": other.token}
        async with console.browser() as stranger, stranger.post("/sign-in/token", data=form) as page:
            assert page.status == 503
