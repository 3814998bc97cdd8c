"""People and their rights, and the authority that signs the cluster's certificates."""

import base64
from collections.abc import Iterator, Mapping

from gpu_control_plane.deckhouse.certificates import certificates_in, pem
from gpu_control_plane.deckhouse.description import CertificateAuthority, ClusterDescription, FileReference, Person
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.services import (
    CAIssuer,
    ClusterAuthorizationRule,
    ClusterAuthorizationRuleSpec,
    ClusterIssuer,
    ClusterIssuerSpec,
    Secret,
    Subject,
    User,
    UserSpec,
)
from gpu_control_plane.deckhouse.secrets import SecretText, authority_key, bcrypt_hash

_ISSUER_NAMESPACE = "d8-cert-manager"
"""Where cert-manager looks for the Secret of a ClusterIssuer."""


def certificate_authority(
    cluster: ClusterDescription, files: Mapping[FileReference, str], secret: SecretText
) -> Iterator[Document]:
    authority = cluster.certificate_authority
    if authority is None:
        return
    yield _authority_secret(authority, files[authority.certificate], secret)
    yield ClusterIssuer(
        metadata=Metadata(name=authority.issuer), spec=ClusterIssuerSpec(ca=CAIssuer(secret_name=authority.issuer))
    )


def people(cluster: ClusterDescription, secret: SecretText) -> Iterator[Document]:
    for person in cluster.access.users:
        yield _rule(person)
        yield User(
            metadata=Metadata(name=person.name),
            spec=UserSpec(
                email=person.email,
                password=secret(person.password, bcrypt_hash(f"password of {person.name}")),
                ttl=person.ttl,
            ),
        )


def _rule(person: Person) -> ClusterAuthorizationRule:
    return ClusterAuthorizationRule(
        metadata=Metadata(name=person.name),
        spec=ClusterAuthorizationRuleSpec(
            subjects=(Subject(kind="User", name=person.email),),
            access_level=person.access_level,
            port_forwarding=person.port_forwarding,
        ),
    )


def _authority_secret(authority: CertificateAuthority, certificate: str, secret: SecretText) -> Secret:
    return Secret(
        metadata=Metadata(name=authority.issuer, namespace=_ISSUER_NAMESPACE),
        type="kubernetes.io/tls",
        data={
            "tls.crt": base64.b64encode(pem(certificate).encode()).decode(),
            "tls.key": secret(authority.key, authority_key(certificates_in(certificate)[0])),
        },
    )
