"""What Ray Serve is told, and what of a configuration is refused."""

from typing import Final

import msgspec
import pytest

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.ray.dashboard.models import ServeApplication, ServeDetails
from gpu_control_plane.ray.service.applications import (
    BadConfig,
    accepted_annotation,
    config_hash,
    digest_of,
    is_accepted,
    parse,
    serve_config_update,
)
from unit.ray.service.builders import POOL, START, group
from unit.ray.service.service_model import running

ONE = {POOL: 1}


def test_a_configuration_is_known_again_whatever_its_order() -> None:
    assert config_hash(parse("a: 1\nb: {c: 2}")) == config_hash(parse("b: {c: 2}\na: 1"))


@pytest.mark.parametrize("text", ["{", "- a", "just words", "a: [", "!!python/object:os.system {}", "\t: x"])
def test_what_is_no_configuration_is_said(text: str) -> None:
    with pytest.raises(BadConfig):
        parse(text)


def test_keys_that_are_no_texts_become_texts() -> None:
    given = parse("a: {2: b, true: c, x: 2026-01-01}")
    assert given == {"a": {"2": "b", "true": "c", "x": "2026-01-01"}}
    assert config_hash(given)


_BILLION: Final = "n0: &n0 [x, x]\n" + "".join(f"n{n}: &n{n} [*n{n - 1}, *n{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    "text",
    [_BILLION, "a: &a [*a]", "a: !!binary aGk=", "a: .nan", f"a: {10**400}"],
)
def test_a_configuration_that_json_does_not_hold_is_said(text: str) -> None:
    with pytest.raises(BadConfig):
        parse(text)


def test_a_cluster_that_is_replaced_keeps_its_configuration_and_gets_another_capacity() -> None:
    whole = serve_config_update({"applications": []}, "", 100, follows=True)
    annotation = accepted_annotation(whole.config_id, START)
    assert is_accepted(whole, annotation)
    assert serve_config_update({"applications": []}, annotation, 100, follows=False) == whole
    kept = serve_config_update({"applications": [1]}, annotation, 100, follows=False)
    assert is_accepted(kept, annotation)
    assert not is_accepted(serve_config_update({"applications": [1]}, annotation, 60, follows=False), annotation)
    assert digest_of(annotation) == config_hash({"applications": []})


def test_the_configuration_that_a_cluster_keeps_is_put_as_it_came() -> None:
    given = b'{"name":"a","user_config":{"v":1.50}}'
    application = ServeApplication(status="RUNNING", deployed_app_config=msgspec.Raw(given))
    details = ServeDetails(applications={"a": application}, http_options=msgspec.Raw(b'{"port":8000}'))
    body = serve_config_update({}, "digest:100@x", 60, follows=False).body(details)
    assert msgspec.json.encode(body) == (
        b'{"http_options":{"port":8000},"applications":[' + given + b'],"target_capacity":60}'
    )
    unknown = ServeDetails(applications={"b": ServeApplication(), **details.applications})
    assert serve_config_update({}, "digest:100@x", 60, follows=False).body(unknown) is None


def test_applications_lost_with_the_head_are_told_again_while_another_cluster_is_to_take_over() -> None:
    model = running(annotations={Annotation.IN_PLACE_UPGRADE.value: "never"})
    old = model.active
    model.cards = 1
    model.change_cluster(group(image="ray:2"), image="ray:2")
    model.settle(5)
    assert model.pending
    assert model.backend == old
    model.serve.configs.pop(model.clusters[old].metadata.uid)
    model.settle(5)
    assert model.pending
    assert model.can_serve(old)
