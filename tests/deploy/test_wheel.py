"""`pip install` gets a wheel with compiled kernels, which needs no compiler, or a source distribution that does without
one. Both are built as a release builds them, and installed into fresh environments whose PATH has no compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.cli.test_program import commands

KERNELS = ("_columns", "_groups", "_kernel", "_wire")
PROBE = "import sys; from sidecar import native; print(native.__file__.startswith(sys.prefix), native.COMPILED)"
HELPS = """if True:
    import sys
    from typer.testing import CliRunner
    from sidecar.cli.main import app
    for words in sys.argv[1:]:
        print(CliRunner().invoke(app, [*words.split(), "--help"]).exit_code)
"""
INSTALL = "pip install 'kafka-group-sidecar[audit]'"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(root / "sidecar", source / "sidecar", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    run([sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)], os.environ)
    return folder / "dist"


def ended(command: list[str], env: dict[str, str] | os._Environ[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command outside this repository's folder: there Python would find the package."""
    return subprocess.run(["nice", *command], capture_output=True, text=True, check=False, env=env, cwd="/")


def run(command: list[str], env: dict[str, str] | os._Environ[str]) -> str:
    done = ended(command, env)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def installed(folder: Path, distribution: Path) -> dict[str, str]:
    """Install it and what it needs; returns an environment in which only that, and no compiler, is found."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    tools = folder / "tools"  # what a venv's scripts need of the system, and no more
    tools.mkdir()
    for name in ("env", "sh", "nice"):
        (tools / name).symlink_to(shutil.which(name) or name)
    hidden = ("PATH", "PYTHONPATH", "CC", "CXX", "JAVA_HOME", "KAFKA_SIDECAR_CACHE", "XDG_CACHE_HOME")
    env = {k: v for k, v in os.environ.items() if k not in hidden and not k.startswith("SIDECAR_")}
    env["PATH"] = f"{folder / 'bin'}:{tools}"
    for compiler in ("cc", "gcc", "clang", "c++", "g++"):
        assert shutil.which(compiler, path=env["PATH"]) is None
    lock = Path(__file__).parents[2] / "requirements" / "sidecar.lock"
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(lock)], env)
    run([*pip, str(distribution)], env)
    return env


def test_the_wheel_has_the_kernels_and_needs_no_compiler(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for kernel in KERNELS:
        assert any(n.startswith(f"sidecar/native/{kernel}.") and n.endswith(".so") for n in names), kernel
    assert any(n.endswith(".avsc") for n in names)
    assert "none-any" not in wheel.name
    env = installed(tmp_path / "venv", wheel)
    assert run([str(tmp_path / "venv/bin/python"), "-c", PROBE], env).strip() == "True True"

    sidecar = str(tmp_path / "venv/bin/sidecar")
    helps = run([str(tmp_path / "venv/bin/python"), "-c", HELPS, *map(" ".join, commands())], env)
    assert set(helps.split()) == {"0"}, "a command needs more than the wheel installs"
    works_without_brokers(sidecar, env, tmp_path)
    needs_the_extra(sidecar, env)
    # The modules of the extra, but not this repository's package, which is found by a .pth file only.
    works_with_the_extra(sidecar, env | {"PYTHONPATH": sysconfig.get_path("purelib")}, tmp_path)


def works_without_brokers(sidecar: str, env: dict[str, str], folder: Path) -> None:
    given = ["--listen", "h:1", "--broker", "h:2", "--node-id", "3"]
    assert run([sidecar, "--version"], env).startswith("kafka-group-sidecar ")
    assert run([sidecar, "config", "check", *given], env) == "The settings are valid.\n"
    assert "command line" in run([sidecar, "config", "show", "--origin", "--changed", *given], env)
    assert "groups.include" in run([sidecar, "config", "settings", "groups."], env)
    assert "kafka-acls.sh" in run([sidecar, "acls", "--principal", "User:x"], env)
    assert ended([sidecar, "health", "127.0.0.1:1"], env).returncode == 3
    assert ended([sidecar, "run"], env).returncode == 2


def needs_the_extra(sidecar: str, env: dict[str, str]) -> None:
    for words in (("audit", "status"), ("audit", "views"), ("drill", "kill-owner"), ("drill", "all")):
        done = ended([sidecar, *words], env)
        assert (done.returncode, done.stderr.splitlines()[1:]) == (2, [INSTALL]), (words, done)


def works_with_the_extra(sidecar: str, env: dict[str, str], folder: Path) -> None:
    env = env | {"HOME": str(folder)}
    found = run([sidecar.removesuffix("sidecar") + "python", "-c", "import sidecar; print(sidecar.__file__)"], env)
    assert found.startswith(str(folder)), "the package of the wheel, and not this repository's"
    for words in (("audit", "status"), ("audit", "views")):
        done = ended([sidecar, *words, "--lake", str(folder / "nowhere")], env)
        assert done.returncode == 3 and "sidecar audit run" in done.stderr, done
    upgrade = ended([sidecar, "drill", "rolling-upgrade", "--out", str(folder)], env)
    assert upgrade.returncode == 2 and "git history" in upgrade.stderr, upgrade
    java = ended([sidecar, "drill", "stop", "--n", "1", "--out", str(folder), "-o", "json"], env)
    assert java.returncode == 3 and "Java" in java.stderr.splitlines()[-1] and java.stdout == "", java


@pytest.mark.tier("nightly")
def test_without_a_compiler_the_source_is_installed_with_kernels_in_python(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    env = installed(tmp_path / "venv", source)
    assert run([str(tmp_path / "venv/bin/python"), "-c", PROBE], env).strip() == "True False"
    assert "HOST:PORT" in run([str(tmp_path / "venv/bin/sidecar"), "health", "--help"], env)
