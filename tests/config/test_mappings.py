"""The `mappings` of an account."""

from __future__ import annotations

import pytest

from jetlake.config import ConfigError, MappingDestination, MappingOptions, load_text


def test_destinations_are_one_or_several() -> None:
    text = """
        mappings { a: b, "c.*": {destination: "d.$1", weight: 20%}
                   maps: [{dest: x, weight: "30%", cluster: east}, {dest: y, weight: 70}] }
        accounts { A { maps { e: f } } }
    """
    options = load_text(text)
    assert options.mappings == (
        MappingOptions("a", (MappingDestination("b"),)),
        MappingOptions("c.*", (MappingDestination("d.$1", 20),)),
        MappingOptions("maps", (MappingDestination("x", 30, "east"), MappingDestination("y", 70))),
    )
    assert options.accounts["A"].mappings == (MappingOptions("e", (MappingDestination("f"),)),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"a..b": x', "not a valid subject"),
        ("a: {destination: b, weight: 101}", "Invalid weight 101 for mapping destination"),
        ("a: {destination: b, weight: many}", "expected a weight"),
        ("a: [{destination: b, weight: 60}, {destination: c, weight: 60}]", "total weight needs to be <= 100"),
        ("a: [{destination: b, weight: 6}, {destination: b, weight: 6}]", 'duplicate entry for "b"'),
        ("a: {weight: 6}", "no subject"),
        ("a: {destination: b, wait: 6}", "wait"),
        ("a: 7", "map"),
    ],
)
def test_what_is_no_mapping(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_text(f"mappings {{ {text} }}")
