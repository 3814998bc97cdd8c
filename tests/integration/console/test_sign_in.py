from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from integration.console.env import ALL, person, running_console


async def test_a_token_of_the_cluster_opens_the_console(cluster: Cluster, client: Client) -> None:
    admin = await person(client, ALL)
    async with (
        running_console(cluster.kubeconfig) as console,
        console.browser(admin.token) as browser,
        browser.get("/") as page,
    ):
        text = await page.text()
        assert page.status == 200, text
        assert admin.user in text
