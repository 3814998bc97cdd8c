"""From the description to the documents of a bring-up. Pure: files and secrets are handed in."""

from collections.abc import Iterator, Mapping

import msgspec

from gpu_control_plane.deckhouse.access import certificate_authority, people
from gpu_control_plane.deckhouse.check import check
from gpu_control_plane.deckhouse.configuration import configuration
from gpu_control_plane.deckhouse.description import ClusterDescription, FileReference
from gpu_control_plane.deckhouse.documents import write_documents, write_secrets
from gpu_control_plane.deckhouse.errors import BadDescription
from gpu_control_plane.deckhouse.gpu import gpu_control_plane
from gpu_control_plane.deckhouse.ingress import ingress
from gpu_control_plane.deckhouse.kinds import Document
from gpu_control_plane.deckhouse.node_scripts import node_scripts
from gpu_control_plane.deckhouse.nodes import machines, node_groups
from gpu_control_plane.deckhouse.rules import problems
from gpu_control_plane.deckhouse.secrets import SecretText, redacted
from gpu_control_plane.deckhouse.storage import storage

_MADE = "Made by `kubectl gpu deckhouse render`: change the description, not this file."


class Rendering(msgspec.Struct, frozen=True):
    """The documents of both files, in order. In the place of secrets they say where those come from."""

    config: tuple[Document, ...]
    resources: tuple[Document, ...]

    @property
    def documents(self) -> tuple[Document, ...]:
        return self.config + self.resources

    @property
    def secrets(self) -> tuple[Document, ...]:
        return tuple(document for document in self.documents if document.is_secret)

    def config_yml(self) -> str:
        return write_documents(self.config, f"{_MADE}\nWhat dhctl installs the first master from. It holds no secret.")

    def resources_yml(self) -> str:
        return write_documents(
            self.resources, f"{_MADE}\nWhat is created once the first master runs. It holds no secret."
        )


def render(cluster: ClusterDescription, files: Mapping[FileReference, str]) -> Rendering:
    """The documents of a cluster. `BadDescription` has all that is wrong with it. No secret is read."""
    return _rendered(cluster, files, redacted)


def render_secrets(cluster: ClusterDescription, files: Mapping[FileReference, str], secret: SecretText) -> str:
    """The content of secrets.yml: the documents that hold secrets, with them."""
    made = _rendered(cluster, files, secret)
    return write_secrets(made.secrets, f"{_MADE}\nSECRETS in clear: delete this file once the cluster is up.")


def _rendered(cluster: ClusterDescription, files: Mapping[FileReference, str], secret: SecretText) -> Rendering:
    if found := problems(cluster, files):
        raise BadDescription(found)
    made = Rendering(config=tuple(configuration(cluster, secret)), resources=tuple(_resources(cluster, files, secret)))
    if found := check(made.documents):
        raise BadDescription(found)
    return made


def _resources(
    cluster: ClusterDescription, files: Mapping[FileReference, str], secret: SecretText
) -> Iterator[Document]:
    """Machines first: the rest waits for modules that need nodes to run on."""
    yield from node_groups(cluster)
    yield from node_scripts(cluster, files)
    yield from machines(cluster, secret)
    yield from gpu_control_plane(cluster, secret)
    yield from storage(cluster, secret)
    yield from ingress(cluster)
    yield from people(cluster, secret)
    yield from certificate_authority(cluster, files, secret)
