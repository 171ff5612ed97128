"""What `pip install` gets: a wheel with compiled kernels, which needs no compiler, and a source distribution that does
without one. Both are built as a release builds them, and installed into fresh environments whose PATH has no compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

KERNELS = ("_columns", "_kernel", "_wire")
PROBE = "import sys; from sidecar import native; print(native.__file__.startswith(sys.prefix), native.COMPILED)"
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


def run(command: list[str], env: dict[str, str] | os._Environ[str]) -> str:
    """Not in this repository's folder: Python would find the package there."""
    done = subprocess.run(["nice", *command], capture_output=True, text=True, check=False, env=env, cwd="/")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def installed(folder: Path, distribution: Path) -> dict[str, str]:
    """Install it and what it needs; returns an environment in which only that, and no compiler, is found."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    tools = folder / "tools"  # what a venv's scripts need of the system, and no more
    tools.mkdir()
    for name in ("env", "sh", "nice"):
        (tools / name).symlink_to(shutil.which(name) or name)
    hidden = ("PATH", "PYTHONPATH", "CC", "CXX")
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
    sidecar = str(tmp_path / "venv/bin/sidecar")
    assert "HOST:PORT" in run([sidecar, "health", "--help"], env)
    assert run([str(tmp_path / "venv/bin/python"), "-c", PROBE], env).strip() == "True True"


def test_without_a_compiler_the_source_is_installed_with_kernels_in_python(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    env = installed(tmp_path / "venv", source)
    assert run([str(tmp_path / "venv/bin/python"), "-c", PROBE], env).strip() == "True False"
    assert "HOST:PORT" in run([str(tmp_path / "venv/bin/sidecar"), "health", "--help"], env)
