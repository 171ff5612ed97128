"""Fetches Kafka's Maven artifacts into a cache, by `mvn` if it is installed, else by the Ivy jar inside pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

KAFKA = "4.4.0"
"""The anchor, and the only place that names it: the sidecar behaves as this Kafka does, its messages are generated, and
brokers, Java clients and tools have this version by default."""
BEFORE = "4.3.1"
"""The newest version before the anchor, on which tests run, too."""
ANCHORS = (KAFKA, BEFORE)

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>{deps}</dependencies></project>"""
DEP = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
Artifact = tuple[str, str, str]
"""Group, name and version."""
ARTIFACTS = ("kafka_2.13", "kafka-tools")
LOGS = {
    "2": (),
    "3": (("org.slf4j", "slf4j-reload4j", "1.7.36"),),
}
LOGS_SINCE_4 = (("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),)
"""Logging jars that Kafka's distribution has, too: without them a broker writes no log. Kafka 2 needs none."""
COMPLETE = "complete-with-logs"


class ArtifactError(Exception):
    pass


def cache_dir() -> Path:
    """Return a folder below `KAFKA_SIDECAR_CACHE` if that is set, else below the user's cache folder."""
    base = os.environ.get("KAFKA_SIDECAR_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "kafka-sidecar" if base else Path.home() / ".cache" / "kafka-sidecar"


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home and Path(home, "bin", "java").exists() else shutil.which("java")
    if not program:
        raise ArtifactError("no Java found: install a JDK or JRE 17 or later, or set JAVA_HOME")
    return program


def archive_file(version: str) -> Path:
    """Return the path of the archive of this Kafka's classes for this Java, which archive.py may have made."""
    return archive_in(cache_dir() / f"kafka-{version}")


def archive_in(folder: Path, *of: object) -> Path:
    """Return the path of an archive of classes for this Java, and for what else it is made `of`."""
    binary = Path(java()).resolve()
    which = zlib.crc32(" ".join(map(str, (binary, binary.stat().st_mtime_ns, *of))).encode())
    return folder / f"classes-{which:08x}.jsa"


def class_archive(version: str) -> tuple[str, ...]:
    """Return the options with which a JVM takes the classes from the archive of this Kafka, if there is one."""
    return archive_options(archive_file(version))


def archive_options(file: Path) -> tuple[str, ...]:
    """Return the options with which a JVM takes the classes from the archive; if it cannot, it loads them as usual."""
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:disable") if file.exists() else ()


def kafka_libs(version: str = KAFKA) -> Path:
    """Return the folder with the jars of this Kafka version, which are fetched if they are not there yet."""
    target = cache_dir() / f"kafka-{version}" / "libs"
    if (target.parent / COMPLETE).exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for old in target.parent.glob("*.jsa"):  # of other jars
        old.unlink()
    _fetch(_wanted(version), target)
    if not any(target.glob(f"kafka_2.13-{version}.jar")):
        raise ArtifactError(f"the download of Kafka {version} left no kafka_2.13-{version}.jar in {target}")
    (target.parent / COMPLETE).touch()
    return target


def streams_libs(version: str = KAFKA) -> Path:
    """Return the folder with the jars of Kafka Streams, which are fetched if they are not there yet."""
    target = cache_dir() / f"streams-{version}" / "libs"
    if not (target.parent / COMPLETE).exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _fetch([("org.apache.kafka", "kafka-streams", version), *LOGS_SINCE_4], target)
        (target.parent / COMPLETE).touch()
    return target


def clients_jar(version: str) -> Path:
    """Return kafka-clients of this version, which has the schemas of all messages. It is fetched alone if need be."""
    libs = cache_dir() / f"kafka-{version}"
    folder = libs / "libs" if (libs / COMPLETE).exists() else cache_dir() / "kafka-clients"
    jar = folder / f"kafka-clients-{version}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as tmp:
            _fetch([("org.apache.kafka", "kafka-clients", version)], Path(tmp))
            Path(tmp, jar.name).replace(jar)
    return jar


def _wanted(version: str) -> list[Artifact]:
    logs = LOGS.get(version.partition(".")[0], LOGS_SINCE_4)
    return [*(("org.apache.kafka", a, version) for a in ARTIFACTS), *logs]


def _fetch(artifacts: list[Artifact], target: Path) -> None:
    """Fetch the artifacts with their dependencies."""
    if shutil.which("mvn"):
        _with_maven(artifacts, target)
    else:
        _with_ivy(artifacts, target)


def _with_maven(artifacts: list[Artifact], target: Path) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        pom = Path(tmp, "pom.xml")
        pom.write_text(POM.format(deps="".join(DEP.format(*wanted) for wanted in artifacts)))
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        _run(["mvn", "-q", "-B", "-f", str(pom), plugin, f"-DoutputDirectory={target}"])


def _with_ivy(artifacts: list[Artifact], target: Path) -> None:
    import pyspark

    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise ArtifactError("Kafka cannot be fetched: neither mvn nor pyspark's Ivy jar was found; install one of them")
    for wanted in artifacts:
        pattern = f"{target}/[artifact]-[revision](-[classifier]).[ext]"
        # fmt: off
        _run([java(), "-jar", str(ivy), "-dependency", *wanted,
              "-retrieve", pattern, "-types", "jar", "bundle", "-confs", "default"])
        # fmt: on


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-2000:]
        raise ArtifactError(f"{' '.join(command[:3])} ... failed ({done.returncode}):\n{tail}")


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[1:] or [KAFKA]:
        print(f"Kafka {wanted}: {kafka_libs(wanted)}")
