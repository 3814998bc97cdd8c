"""What OpenShift's objects say of the cluster."""

from gpu_control_plane.operator.openshift import (
    ClusterVersion,
    ClusterVersionStatus,
    ImageStream,
    ImageStreamSpec,
    Proxy,
    ProxySpec,
    Tag,
    TagSource,
    TrustedCA,
    Update,
    openshift_of,
)

_NEWEST_FIRST = ClusterVersionStatus(
    history=(Update(state="Partial", version="4.21.0"), Update(state="Completed", version="4.20.3"))
)


def test_the_newest_release_that_is_complete_counts() -> None:
    assert openshift_of(ClusterVersion(status=_NEWEST_FIRST), None, None).version == "4.20.3"


def test_only_the_proxies_that_are_set_are_named() -> None:
    proxy = Proxy(spec=ProxySpec(https_proxy="http://proxy:3128", no_proxy="10.0.0.0/8"))
    found = openshift_of(ClusterVersion(), proxy, None)
    assert found.proxy == {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8"}
    assert not found.proxy_ca


def test_a_proxy_with_an_authority_of_its_own_is_noticed() -> None:
    proxy = Proxy(spec=ProxySpec(trusted_ca=TrustedCA(name="user-ca-bundle")))
    assert openshift_of(ClusterVersion(), proxy, None).proxy_ca


def test_each_release_of_the_system_has_its_toolkit() -> None:
    tags = (
        Tag(name="414.92.202309282257", source=TagSource(name="quay.io/toolkit@sha256:1")),
        Tag(name="latest"),
    )
    found = openshift_of(ClusterVersion(), None, ImageStream(spec=ImageStreamSpec(tags=tags)))
    assert found.toolkit_images == {"414.92.202309282257": "quay.io/toolkit@sha256:1"}
