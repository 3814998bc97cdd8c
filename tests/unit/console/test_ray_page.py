"""The page of Ray: whatever there is of it is shown."""

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request

from gpu_control_plane.api.ray.view import RayJobView
from gpu_control_plane.console.rendering import make_environment, render
from gpu_control_plane.console.static_files import StaticFiles
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.ray import RayUserRow, job_rows


def _shown(*users: RayUserRow) -> str:
    app = Starlette()
    app.state.templates = make_environment(StaticFiles())
    request = Request({"type": "http", "method": "GET", "path": "/ray", "query_string": b"", "headers": [], "app": app})
    return render(request, "ray_rows.html", fleet=Fleet(), rows=[], users=users, hidden=0, installed=True)


def test_a_job_is_shown_that_has_no_cluster() -> None:
    """One that was refused, is suspended or has ended."""
    body = {
        "metadata": {"name": "train", "namespace": "team-a"},
        "status": {"jobDeploymentStatus": "ValidationFailed", "message": "no cluster is given"},
    }
    shown = _shown(*job_rows([msgspec.convert(body, RayJobView)], []))
    assert "team-a/train" in shown
    assert "no cluster is given" in shown
    assert "kubectl get rayclusters" not in shown
    assert "kubectl get rayclusters" in _shown()
