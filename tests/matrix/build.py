"""Decides how each kind of program is built and started, and says why it cannot be, if a tool is missing.

What is built goes below the cache folder, never into the repository. A build is kept for as long as its sources, its
manifest and its versions stay the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sidecar.drill.artifacts import cache_dir

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
BUILD_S = 600
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class NotRun(Exception):
    """The client cannot be tried on this machine; the text says why."""


class BuildError(Exception):
    """The tools are there, but the build failed: that is a fault, and no reason to skip a row."""


@dataclass(frozen=True)
class Program:
    """The command of a member, before its options, and what its environment needs."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Toolchain(Protocol):
    def build(self) -> Program: ...


def need(tool: str, what: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise NotRun(f"no {what}")
    return found


def _run(command: list[str], cwd: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(Path(c).name for c in command[:3])} ...: not within {BUILD_S} s") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-2000:]
        raise BuildError(f"{' '.join(Path(c).name for c in command[:3])} ... failed ({done.returncode}):\n{tail}")


def _stamp(inputs: list[Path], *words: str) -> str:
    digest = hashlib.sha256(" ".join(words).encode())
    for path in sorted(inputs):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _folder(name: str, stamp: str) -> tuple[Path, bool]:
    """Return the folder of a build, and whether it holds a finished build of the same inputs; if not, it is empty."""
    folder = cache_dir() / "matrix" / name
    mark = folder / "complete"
    if mark.exists() and mark.read_text() == stamp:
        return folder, True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder, False


@dataclass(frozen=True)
class Java:
    main: str
    sources: tuple[str, ...]
    artifact: str
    version: str
    resources: tuple[str, ...] = ()
    folder: Path = PROGRAMS / "java"
    jvm: tuple[str, ...] = JVM

    def build(self) -> Program:
        home = os.environ.get("JAVA_HOME")
        java, javac = (f"{home}/bin/{t}" if home else t for t in ("java", "javac"))
        java, javac, mvn = need(java, "Java"), need(javac, "JDK"), need("mvn", "Maven")
        inputs = [self.folder / name for name in ("pom.xml", *self.sources, *self.resources)]
        stamp = _stamp(inputs, self.artifact, self.version)
        folder, done = _folder(f"java/{self.artifact}-{self.version}", stamp)
        libs, classes = folder / "libs", folder / "classes"
        if not done:
            names = [f"-Dkafka.artifact={self.artifact}", f"-Dkafka.version={self.version}"]
            _run([mvn, "-q", "-B", "-f", str(inputs[0]), *names, COPY, f"-DoutputDirectory={libs}"], folder)
            found = [str(s) for s in inputs if s.suffix == ".java"]
            classes.mkdir()
            for name in self.resources:
                (classes / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.folder / name, classes / name)
            _run([javac, "-nowarn", "-d", str(classes), "-cp", f"{libs}/*", *found], folder)
            (folder / "complete").write_text(stamp)
        return Program((java, *self.jvm, "-cp", f"{classes}:{libs}/*", self.main))


@dataclass(frozen=True)
class Go:
    """`versions`: the module file, without its suffix; each but the first is for one program."""

    name: str
    versions: str = "go"

    def build(self) -> Program:
        go = need("go", "Go")
        source = PROGRAMS / "go"
        module = source / f"{self.versions}.mod"
        inputs = [module, module.with_suffix(".sum"), *source.glob("*/*.go")]
        stamp = _stamp(inputs)
        folder, done = _folder(self.versions, stamp)
        if not done:
            what = ["./..."] if self.versions == "go" else [f"./{self.name}"]
            options = ["-mod=readonly", f"-modfile={module}", "-buildvcs=false", "-o", f"{folder}/"]
            _run([go, "build", *options, *what], source)
            (folder / "complete").write_text(stamp)
        return Program((str(folder / self.name),))


@dataclass(frozen=True)
class Node:
    file: str
    source: str = "node"

    def build(self) -> Program:
        node, npm = need("node", "Node.js"), need("npm", "npm")
        inputs = [p for p in (PROGRAMS / self.source).iterdir() if p.is_file()]
        stamp = _stamp(inputs)
        folder, done = _folder(self.source, stamp)
        if not done:
            for path in inputs:
                shutil.copy(path, folder)
            _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
            (folder / "complete").write_text(stamp)
        return Program((node, str(folder / self.file)))


@dataclass(frozen=True)
class Python:
    module: str
    packages: str = "requirements"

    def build(self) -> Program:
        manifest = PROGRAMS / "python" / f"{self.packages}.txt"
        stamp = _stamp([manifest], sys.version)
        folder, done = _folder("python" if self.packages == "requirements" else f"python-{self.packages}", stamp)
        python = folder / "venv" / "bin" / "python"
        if not done:
            _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "-r", str(manifest)], folder)
            (folder / "complete").write_text(stamp)
        return Program((str(python), "-m", f"tests.matrix.programs.python.{self.module}"), {"PYTHONPATH": str(ROOT)})
