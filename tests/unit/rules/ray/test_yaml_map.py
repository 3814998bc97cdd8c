"""A map that a user writes as YAML: what it says in JSON, and what is not read because it costs too much."""

import pytest

from gpu_control_plane.rules.ray.yaml_map import LIMIT, BadYAMLMap, read_map


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("# nothing", {}),
        ("pip: [torch]\nenv_vars: {A: 'x'}", {"pip": ["torch"], "env_vars": {"A": "x"}}),
        ("a: 2026-01-02\nb: 2026-01-02 03:04:05", {"a": "2026-01-02", "b": "2026-01-02T03:04:05"}),
        ("2: a\nb: c\ntrue: d\nnull: e", {"2": "a", "b": "c", "true": "d", "null": "e"}),
        ("a: &one {x: 1}\nb: {<<: *one, y: 2}\nc: *one", {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}),
        ("a: 1.5\nb: [true, null]", {"a": 1.5, "b": [True, None]}),
    ],
)
def test_a_map_is_read_as_json_can_say_it(text: str, read: object) -> None:
    assert read_map(text) == read


def doubled(levels: int, first: str, next_one: str) -> str:
    """Each line stands for ten of the line before."""
    lines = (f"a{at}: &a{at} {next_one.format(', '.join([f'*a{at - 1}'] * 10))}" for at in range(1, levels))
    return "\n".join((f"a0: &a0 {first}", *lines))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "no YAML"),
        ("- a", "no map"),
        ("words", "no map"),
        ("a: 2026-13-45", "month must be in 1..12"),
        (f"a: {'1' * 5000}", "no YAML"),
        ("a: .nan", "JSON"),
        ("a: .inf", "JSON"),
        ("a: !!binary aGk=", "JSON"),
        ("a: !!set {b}", "JSON"),
        ("1.5: a", "key"),
        ("a: " + "[" * 20_000, "too deeply"),
        ("a: b\n" * (LIMIT // 4), "characters"),
        ("a: &a [*a]", "aliases"),
        (doubled(12, "[x]", "[{}]"), "aliases"),
        (f"a: &a {'x' * 60_000}\nb: [{', '.join(['*a'] * 1000)}]", "aliases"),
        (doubled(12, "{x: 1}", "{{<<: [{}]}}"), "<<"),
        ("a: &a {x: 1}\nb: {<<: [" + ", ".join(["*a"] * 1000) + "]}", "<<"),
    ],
)
def test_what_is_none_or_costs_too_much_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(BadYAMLMap, match=why):
        read_map(text)


def test_what_is_read_is_the_readers_to_change() -> None:
    read_map("a: {b: 1}")["a"]["b"] = 2
    assert read_map("a: {b: 1}") == {"a": {"b": 1}}
