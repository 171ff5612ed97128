"""Classes are measured, and the list of large ones only goes down: on tiny classes, never on this repository's."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tools import class_sizes, house
from tools.class_sizes import LARGE, LIMITS, Size


def source(methods: int = 1, attributes: int = 0, arguments: int = 0) -> str:
    """Returns the source of a class `A`; one of its methods is its constructor."""
    given = ", ".join(["self", *(f"a{n}" for n in range(arguments))])
    stored = "".join(f"        self.x{n} = 0\n" for n in range(attributes))
    others = "".join(f"    def m{n}(self): ...\n" for n in range(methods - 1))
    return f"class A:\n    def __init__({given}):\n{stored}        pass\n{others}"


def size(text: str) -> Size:
    ((_, found),) = class_sizes.classes_of(ast.parse(dedent(text)))
    return found


def test_methods_attributes_and_constructor_arguments_are_counted() -> None:
    assert size(source(3, 2, 4)) == Size(3, 2, 4)


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ("self.a = self.b = 0", 2),
        ("self.a: int = 0", 1),
        ("self.a, (self.b, c) = 0, (0, 0)", 2),
        ("self.a += 1", 1),
        ("def inner():\n            self.a = 0", 1),
        ("for self.a in (): pass", 1),
        ("self.a.b = 0", 0),
        ("other.a = 0", 0),
        ("self.a[0] = 0", 0),
        ("x = self.a", 0),
    ],
)
def test_an_attribute_is_what_is_stored_to_self(body: str, attributes: int) -> None:
    assert size(f"class A:\n    async def m(self):\n        {body}\n") == Size(1, attributes, 0)


def test_arguments_by_name_count_too() -> None:
    assert size("class A:\n    def __init__(self, a, /, b, *rest, c=1, **more): ...\n").arguments == 3


def test_a_class_within_a_function_is_one() -> None:
    assert list(class_sizes.classes_of(ast.parse("def f():\n    class A: ...\n"))) == [("A", Size(0, 0, 0))]


def test_of_classes_with_one_name_the_largest_numbers_count() -> None:
    """Symptom: a smaller one hid a larger one of the same name in another file."""
    sizes = [Size(40, 1, 1), Size(26, 20, 1), Size(1, 1, 1)]
    for order in (sizes, sizes[::-1]):
        assert class_sizes.large(("A", s) for s in order) == {"A": Size(40, 20, 1)}


@pytest.mark.parametrize("which", range(3))
def test_the_limits_are_still_allowed_and_one_more_is_not(which: int) -> None:
    counts = [1, 0, 0]
    counts[which] = LIMITS[which]
    assert class_sizes.large([("A", size(source(*counts)))]) == {}
    counts[which] += 1
    assert class_sizes.large([("A", size(source(*counts)))]) == {"A": Size(*counts)}


def test_the_list_covers_what_is_large_and_only_goes_down() -> None:
    found = {"A": Size(30, 5, 2)}
    assert list(class_sizes.problems(found, {"A": (Size(30, 5, 2), "")})) == []
    for listed, word in (
        ({}, "split it"),
        ({"A": (Size(29, 5, 2), "")}, "split it"),
        ({"A": (Size(30, 4, 2), "")}, "split it"),
        ({"A": (Size(31, 5, 2), "")}, "lower it"),
        ({"A": (Size(30, 5, 3), "")}, "lower it"),
    ):
        (problem,) = class_sizes.problems(found, listed)
        assert problem.startswith("A: ") and word in problem
    (problem,) = class_sizes.problems({}, {"A": (Size(30, 5, 2), "")})
    assert "take it out" in problem


def test_the_check_fails_on_a_class_that_is_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "PATHS_MODULE", "no.such_module")
    root = tmp_path / "fake"
    (root / "a").mkdir(parents=True)
    (root / "a" / "one.py").write_text(source(26))
    assert house.main([], root) == 0
    assert house.main(["--check"], root) == 1
    assert "  A: 26 methods, 0 attributes, 0 constructor arguments" in capsys.readouterr().out
    assert house.main(["--check"], root, listed={"A": (Size(26, 0, 0), "")}) == 0
    assert house.main(["--check"], root, listed={"A": (Size(27, 0, 0), "")}) == 1


def test_the_list_gives_a_reason_for_each() -> None:
    assert all(reason for _, reason in LARGE.values())
