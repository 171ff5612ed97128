"""A copy of the tree, in which one bug after another is planted and taken out again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.table import ROOT

LEFT_OUT = (".git", ".venv", "out", "build", "dist", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache")
NICE = ("nice", "-n", "10") if shutil.which("nice") else ()
BUILD_S = 300.0


def compiled(file: str) -> list[str]:
    """The command that compiles this kernel in its place, and no other one, as setup.py would."""
    target = file.removesuffix(".c") + str(sysconfig.get_config_var("EXT_SUFFIX"))
    shared = str(sysconfig.get_config_var("LDSHARED")).split()
    return [*shared, "-O1", "-fPIC", f"-I{sysconfig.get_path('include')}", file, "-o", target]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command. `code` None: its time was over."""

    code: int | None
    s: float
    out: str


class Slot:
    def __init__(self, where: Path) -> None:
        self.root = where
        self._planted = 0
        self._before = ""
        self._warm: subprocess.Popen[str] | None = None
        if where.exists():
            shutil.rmtree(where)
        ignore = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(ROOT, where, symlinks=True, ignore=ignore)

    def plant(self, file: str, text: str) -> None:
        """Builds a kernel anew if it is changed; raises RuntimeError where it does not compile."""
        path = self.root / file
        self._before = path.read_text()
        path.write_text(text)
        self._planted += 1
        at = time.time() + self._planted  # Python compares seconds, and the next bug may have as many bytes
        os.utime(path, (at, at))
        if file.endswith(".c"):
            built = self.run(compiled(file), BUILD_S)
            if built.code != 0:
                raise RuntimeError(f"{file} does not compile:\n{built.out[-2000:]}")

    def restore(self, file: str) -> None:
        """Restores the files as of the copy: the working tree may be edited during a run."""
        path = self.root / file
        path.write_text(self._before)
        self._planted += 1
        at = time.time() + self._planted
        os.utime(path, (at, at))
        if file.endswith(".c"):
            self.run(compiled(file), BUILD_S)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that failed are tried first

    def tests(self, args: Sequence[str], limit_s: float) -> Ended:
        """A run of pytest, forked from a process that is warm."""
        if self._warm is None:
            command = [*NICE, sys.executable, "-m", "tests.mutants.warm"]
            pipe = subprocess.PIPE
            self._warm = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._warm.stdin is not None and self._warm.stdout is not None
        told, began_s = self.root / "told.txt", time.monotonic()
        ask = {"where": str(self.root), "args": list(args), "told": str(told), "limit_s": limit_s}
        self._warm.stdin.write(json.dumps(ask) + "\n")
        self._warm.stdin.flush()
        code = json.loads(self._warm.stdout.readline())
        return Ended(code, time.monotonic() - began_s, told.read_text(errors="replace"))

    def close(self) -> None:
        if self._warm is not None:
            assert self._warm.stdin is not None
            self._warm.stdin.close()
            self._warm.wait()

    def run(self, command: Sequence[str], limit_s: float) -> Ended:
        """In a process group of its own, which ends with it."""
        env = {**os.environ, "PYTHONPATH": str(self.root), "NO_COLOR": "1"}
        began_s = time.monotonic()
        with (self.root / "told.txt").open("w+", errors="replace") as told:
            process = subprocess.Popen(
                [*NICE, *command],
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_group(process)
            told.seek(0)
            return Ended(code, time.monotonic() - began_s, told.read())


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
