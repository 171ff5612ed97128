"""The plan of the house and the paths through it, on tiny packages: never on the state of this repository."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace

import pytest

from tools import house, sleeps
from tools.imports import read

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Writes a package named `fake` from files given as {"room/file.py": source}, and makes it importable."""

    def write(files: dict[str, str]) -> Path:
        root = tmp_path / "fake"
        root.mkdir()
        for name, source in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(source))
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            (folder / "__init__.py").touch()
        importlib.invalidate_caches()
        return root

    monkeypatch.syspath_prepend(str(tmp_path))
    house._getters.cache_clear()
    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "fake"]:
        del sys.modules[name]


def plan(root: Path) -> house.Plan:
    return house.Plan(read(root))


# Imports


@pytest.mark.parametrize(
    ("back", "where"),
    [
        ("from fake.a.one import ONE", ""),
        ("import fake.a.one", ""),
        ("from fake.a import one", ""),
        ("from . import one", ""),
        ("from .one import ONE", ""),
        ("from ..a import one", ""),
        ("def f():\n    from fake.a.one import ONE", "in a function"),
        ("class C:\n    async def f(self):\n        if self:\n            import fake.a.one", "in a function"),
        ("def f():\n    importlib.import_module('fake.a.one')", "in a function"),
        ("if TYPE_CHECKING:\n    from fake.a.one import ONE", "TYPE_CHECKING"),
        ("if typing.TYPE_CHECKING:\n    import fake.a.one as one", "TYPE_CHECKING"),
        ("if not TYPE_CHECKING:\n    import fake.a.one as one", ""),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import fake.a.one as one", ""),
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(build: Build, back: str, where: str) -> None:
    root = build({"a/one.py": "from fake.a.two import TWO\nONE = 1\n", "a/two.py": f"{back}\nTWO = 2\n"})
    found = plan(root)
    assert found.file_circles == [["fake.a.one", "fake.a.two"]]
    assert found.room_circles == []
    assert [(i.source.file, i.target.file, i.where) for i in found.imports] == [
        ("a/one.py", "a/two.py", ""),
        ("a/two.py", "a/one.py", where),
    ]


def test_a_package_and_its_module_may_form_a_circle(build: Build) -> None:
    root = build({"a/__init__.py": "from .one import ONE\n", "a/one.py": "from fake.a import TWO\nONE = 1\n"})
    assert plan(root).file_circles == [["fake.a", "fake.a.one"]]


def test_a_name_from_a_package_is_an_import_of_the_package(build: Build) -> None:
    root = build({"a/__init__.py": "TWO = 2\n", "b/one.py": "from fake.a import TWO\nimport json\nimport faker\n"})
    assert [str(i) for i in plan(root).imports] == ["b/one.py:1 imports a/__init__.py"]


def test_a_circle_through_generated_code_is_a_circle(build: Build) -> None:
    root = build(
        {
            "wire/frames.py": "from fake.wire.generated.headers import Header\n",
            "wire/generated/headers.py": "from fake.wire.frames import Frame\n" + "X = 1\n" * 600,
        }
    )
    found = plan(root)
    assert found.file_circles == [["fake.wire.frames", "fake.wire.generated.headers"]]
    assert found.long_files == []


def test_a_circle_of_rooms_needs_no_circle_of_files(build: Build) -> None:
    root = build({"a/one.py": "import fake.b.one\n", "b/one.py": "", "b/two.py": "import fake.a.two\n", "a/two.py": ""})
    found = plan(root)
    assert found.file_circles == []
    assert found.room_circles == [["a", "b"]]


def test_circles_that_touch_are_one_and_others_stay_apart() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}, "d": {"a", "e"}, "e": {"d"}, "f": {"f", "a"}}
    assert house.circles_of(graph) == [["a", "b", "c"], ["d", "e"]]


def test_a_room_stands_one_above_the_highest_it_imports() -> None:
    graph = {"cli": {"core", "front"}, "front": {"core"}, "core": {"wire"}, "wire": set[str](), "native": set[str]()}
    assert house.layers_of(graph) == [["native", "wire"], ["core"], ["front"], ["cli"]]
    assert house.layers_of({"a": {"b"}, "b": {"a", "c"}, "c": set[str](), "d": {"a"}}) == [["c"], ["a", "b"], ["d"]]
    assert house.layers_of({}) == []


def test_arrows_count_the_imports_between_rooms(build: Build) -> None:
    root = build(
        {
            "core/group.py": "from fake.wire import frames, apis\nfrom fake.core import timers\n",
            "core/timers.py": "from fake.wire.apis import A, B\n",
            "wire/frames.py": "",
            "wire/apis.py": "A = B = 1\n",
        }
    )
    assert plan(root).arrows == {("core", "wire"): 3}


# Sizes


def function(lines: int, head: str = "def f():") -> str:
    return "\n".join([head, *["    x = 1"] * (lines - 1)]) + "\n"


def test_a_function_of_61_lines_is_found_and_one_of_60_is_not(build: Build) -> None:
    root = build(
        {"a/one.py": function(60, "@cache\ndef f():") + function(61, "def g():") + function(61, "async def h():")}
    )
    found = [(name, line, lines) for _, name, line, lines in plan(root).long_functions]
    assert found == [("g", 62, 61), ("h", 123, 61)]


def test_methods_and_nested_functions_are_named_in_full(build: Build) -> None:
    inner = "\n".join(f"        {line}" for line in function(61, "def inner():").splitlines())
    root = build({"a/one.py": f"class C:\n    def method(self):\n{inner}\n"})
    found = [(name, lines) for _, name, _, lines in plan(root).long_functions]
    assert found == [("C.method", 62), ("C.method.inner", 61)]


def test_a_file_of_501_lines_is_found_and_one_of_500_is_not(build: Build) -> None:
    root = build({"a/one.py": "x = 1\n" * 500, "a/two.py": "x = 1\n" * 500 + "x = 1"})
    assert [(module.file, module.lines) for module in plan(root).long_files] == [("a/two.py", 501)]


# Paths

TWO_ROOMS = {
    "front/session.py": """
        from fake.api.heartbeat import handle
        from fake.wire.frames import header_end, write

        def receive(frame):
            return _drive(handle(frame, header_end(frame)))

        def _drive(handler):
            try:
                asked = next(handler)
                while True:
                    asked = handler.send(_answer(asked))
            except StopIteration as end:
                return write(end.value)

        def _answer(asked):
            return asked
        """,
    "api/heartbeat.py": """
        from fake.wire.frames import decode

        def handle(frame, at):
            request = decode(frame[at:])
            yield "may read"
            epoch = yield "coordinate"
            return request, epoch
        """,
    "wire/frames.py": """
        def header_end(frame):
            return 4

        def decode(body):
            return [read(byte) for byte in body]

        def read(byte):
            return byte

        def write(reply):
            return read(read(reply))
        """,
}


def receive(build: Build, files: dict[str, str], module: str = "fake.front.session") -> list[house.Call]:
    """The calls of `receive` in a module of a fake package."""
    root = build(files)
    target = importlib.import_module(module).receive
    return house.trace(lambda: target(b"0123456"), root)


def test_the_calls_are_recorded_with_their_depth_and_room(build: Build) -> None:
    calls = receive(build, TWO_ROOMS)
    assert [(call.depth, call.room, call.name, call.resumed) for call in calls] == [
        (0, "front", "receive", False),
        (1, "wire", "header_end", False),
        (1, "front", "_drive", False),
        (2, "api", "handle", False),
        (3, "wire", "decode", False),
        *[(4, "wire", "read", False)] * 3,
        (2, "front", "_answer", False),
        (2, "api", "handle", True),
        (2, "front", "_answer", False),
        (2, "api", "handle", True),
        (2, "wire", "write", False),
        *[(3, "wire", "read", False)] * 2,
    ]
    assert (calls[0].file, calls[0].line) == ("front/session.py", 5)


def test_a_path_counts_rooms_and_entries(build: Build) -> None:
    path = house.path_of(receive(build, TWO_ROOMS))
    assert path.visited == ["front", "wire", "api"]
    assert path.rooms == 3
    assert path.entries == {"front": 1, "proxy": 0, "api": 3, "link": 0, "coordinator": 0, "core": 0}


def test_a_path_is_indented_by_room_and_folds_what_a_library_does(build: Build) -> None:
    path = house.path_of(receive(build, TWO_ROOMS), width=70)
    assert path.lines == [
        "front.session.receive                               front/session.py:5",
        "  wire.frames.header_end",
        "front.session._drive                                front/session.py:8",
        "  api.heartbeat.handle                              api/heartbeat.py:4",
        "    wire.frames.decode",
        "front.session._answer                              front/session.py:16",
        "  api.heartbeat.handle (resumed)                    api/heartbeat.py:4",
        "front.session._answer                              front/session.py:16",
        "  api.heartbeat.handle (resumed)                    api/heartbeat.py:4",
        "  wire.frames.write",
    ]


def call(depth: int, room: str, name: str) -> house.Call:
    return house.Call(depth, room, f"{room}/m.py", name, 1)


def test_neighbouring_calls_of_a_library_share_a_line() -> None:
    calls = [call(0, "core", "turn"), call(1, "wire", "a"), call(1, "wire", "b"), call(1, "wire", "b")]
    calls += [call(1, "native", "c"), call(1, "wire", "d"), call(2, "core", "back"), call(3, "wire", "e")]
    path = house.path_of(calls, width=40)
    assert path.entries["core"] == 2
    assert [line.split("  core/")[0].rstrip() for line in path.lines] == [
        "core.m.turn",
        "  wire.m.a, wire.m.b x2",
        "  native.m.c",
        "  wire.m.d",
        "    core.m.back",
        "      wire.m.e",
    ]


def test_equal_neighbours_become_one() -> None:
    calls = [call(0, "core", "replay")]
    calls += [call(1, "core", "one"), call(2, "state", "decode")] * 3 + [call(1, "core", "two"), call(1, "core", "two")]
    lines = [line.split("  ")[0] or line.split()[0] for line in house.path_of(calls).lines]
    assert lines == ["core.m.replay", "core.m.one x3 with its calls", "state.m.decode", "core.m.two x2"]


def test_a_coroutine_that_an_event_loop_resumes_is_entered_again(build: Build) -> None:
    calls = receive(
        build,
        {
            "front/session.py": """
                import asyncio
                from fake.coordinator.writer import append

                def receive(frame):
                    asyncio.run(serve(frame))

                async def serve(frame):
                    await append(frame)
                """,
            "coordinator/writer.py": """
                import asyncio

                async def append(frame):
                    done = asyncio.get_running_loop().create_future()
                    asyncio.get_running_loop().call_soon(lambda: done.set_result(None))
                    await done
                """,
        },
    )
    assert [(call.depth, call.name, call.resumed) for call in calls] == [
        (0, "receive", False),
        (1, "serve", False),
        (2, "append", False),
        (1, "append.<locals>.<lambda>", False),
        (1, "serve", True),
        (2, "append", True),
    ]
    path = house.path_of(calls)
    assert (path.entries["front"], path.entries["coordinator"]) == (1, 3)


def test_getters_comprehensions_and_imports_are_no_calls(build: Build) -> None:
    calls = receive(
        build,
        {
            "core/group.py": """
                from fake.core.members import Member

                def receive(frame):
                    import fake.core.late
                    members = sorted((Member(byte) for byte in frame), key=lambda member: member.epoch)
                    return [member.lag for member in members[:1]] + [m.cached for m in members[:1]]
                """,
            "core/members.py": """
                from functools import cached_property

                class Member:
                    def __init__(self, epoch):
                        self._epoch = epoch

                    @property
                    def epoch(self):
                        "Says which."
                        return self._epoch + 1

                    @property
                    def lag(self):
                        return abs(self._epoch)

                    @cached_property
                    def cached(self):
                        return self._epoch
                """,
            "core/late.py": """
                def register():
                    return 1

                class Kind:
                    number = register()
                """,
        },
        "fake.core.group",
    )
    assert [call.name for call in calls] == ["receive", *["Member.__init__"] * 7, "Member.lag"]


def test_a_lambda_called_by_another_room_is_a_call(build: Build) -> None:
    calls = receive(
        build,
        {
            "front/session.py": """
                from fake.core.turn import run

                def receive(frame):
                    run(lambda: frame)
                """,
            "core/turn.py": """
                def run(effect):
                    effect()
                """,
        },
    )
    assert [(call.depth, call.room) for call in calls] == [(0, "front"), (1, "core"), (2, "front")]
    assert house.path_of(calls).entries["front"] == 2


def test_a_compiled_kernel_is_a_call(build: Build) -> None:
    recorder = house.Recorder(build({}))
    recorder(sys._getframe(), "c_call", SimpleNamespace(__module__="fake.native._kernel", __qualname__="uniform"))
    recorder(sys._getframe(), "c_call", len)
    assert [str(call) for call in recorder.calls] == ["native._kernel.uniform"]


def test_a_failing_action_leaves_no_profiler_behind(build: Build) -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        house.trace(lambda: print(1 // 0), build({}))
    assert sys.getprofile() is before


# What is printed


def printed(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> tuple[int, list[str]]:
    code = house.main(list(arguments), root)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    return code, lines


def test_the_last_line_is_one_json_object_and_check_fails_on_a_circle(
    build: Build, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "PATHS_MODULE", "fake.no_such_module")
    root = build(
        {"a/one.py": "import fake.b.one\n" + function(61), "b/one.py": "import fake.a.one\n" + "x = 1\n" * 500}
    )
    code, lines = printed(capsys, root)
    sizes = {"files_over_500": 1, "functions_over_60": 1, "classes": 0}
    counts = {"circles": 2, **sizes, "sleeps": 0, "words": 0, "docstrings": 0, "path_rooms": None}
    assert (code, json.loads(lines[-1])) == (0, counts)
    assert "    b/one.py:1 imports a/one.py" in lines
    assert "    501  b/one.py" in lines
    assert "     61  a/one.py:2  f" in lines
    assert any(line.startswith("paths: not available") for line in lines)
    assert printed(capsys, root, "--check")[0] == 1


def test_each_path_is_run_and_the_one_with_the_most_rooms_counts(
    build: Build, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = build(TWO_ROOMS)
    session = importlib.import_module("fake.front.session")
    frames = importlib.import_module("fake.wire.frames")
    paths = ModuleType("fake.paths")
    steady, takeover = (lambda: session.receive(b"0123456")), (lambda: frames.decode(b"0"))
    monkeypatch.setattr(
        paths, "PATHS", {"steady heartbeat": lambda: steady, "takeover": lambda: takeover}, raising=False
    )
    monkeypatch.setitem(sys.modules, "fake.paths", paths)
    monkeypatch.setattr(house, "PATHS_MODULE", "fake.paths")
    code, lines = printed(capsys, root, "--check")
    assert (code, json.loads(lines[-1])["path_rooms"]) == (0, 3)
    assert "  steady heartbeat: 3 rooms, 15 calls" in lines
    assert "    entered  front 1, api 3 (more than in and out)" in lines
    assert "  joining heartbeat: not available" in lines
    assert "  takeover: 1 rooms, 2 calls" in lines


# Sleeps


@pytest.mark.parametrize(
    ("source", "n"),
    [
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0.1)", 1),
        ("import time\ntime.sleep(s)\ntime.sleep(s)", 2),
        ("from time import sleep as pause\npause(1)", 1),
        ("from asyncio import sleep\nasync def f():\n    while True:\n        await sleep(1)", 1),
        ("page.wait_for_timeout(50)", 1),
        ("await_(asyncio.sleep(0))", 0),
        ("def sleep(s): pass\nsleep(3)\nworld.sleep(3)", 0),
        ("'time.sleep(1)'", 0),
    ],
)
def test_a_sleep_is_a_call_that_lets_real_or_virtual_time_pass(source: str, n: int) -> None:
    assert sleeps.count(source) == n


def test_a_file_may_sleep_as_often_as_the_table_says_and_no_seldomer(
    build: Build, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = build({"a/one.py": ""})
    monkeypatch.setattr(house, "PATHS_MODULE", "fake.no_such_module")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text("import time\ntime.sleep(1)\n")
    assert list(sleeps.problems(tests, {"test_a.py": (1, "")})) == []
    for allowed, said in ((2, "lower it"), (0, "wait for an event")):
        (problem,) = sleeps.problems(tests, {"test_a.py": (allowed, "")})
        assert "test_a.py: 1 sleeps" in problem and said in problem
    monkeypatch.setattr(sleeps, "problems", lambda tests: iter(["tests/test_a.py: 1 sleeps"]))
    assert house.main([], root, tests) == 0 and house.main(["--check"], root, tests) == 1
    assert "  tests/test_a.py: 1 sleeps" in capsys.readouterr().out


def test_what_sleeps_on_virtual_time_does_not_run_on_real_time(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    file = tmp_path / "kafka" / "test_a.py"
    file.write_text("import asyncio\nasync def f():\n    await asyncio.sleep(1)\nclock.run(f())\n")
    allowed = {"kafka/test_a.py": (1, sleeps.VIRTUAL)}
    assert list(sleeps.problems(tmp_path, allowed)) == []
    file.write_text(file.read_text().replace("clock.run", "asyncio.run"))
    (problem,) = sleeps.problems(tmp_path, allowed)
    assert "real time" in problem


def test_the_table_of_sleeps_gives_a_reason_for_each() -> None:
    assert all(n > 0 and why for n, why in sleeps.SLEEPS.values())
