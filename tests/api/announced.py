"""The API versions that brokers announce: announced.tsv has a row for each API and a column for each Kafka.

    python -m tests.api.announced VERSION HOST:PORT

asks the broker there, in version 0 that each Kafka knows, and writes down its answer as that Kafka's.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from sidecar.wire.apis import Api
from sidecar.wire.frames import SIZE, request_frame
from sidecar.wire.generated import api_versions as av

TABLE = Path(__file__).with_suffix(".tsv")
Ranges = dict[int, tuple[int, int]]
"""Api key -> lowest and highest version."""


def announced() -> dict[str, Ranges]:
    """Returns what each Kafka announces, the oldest first."""
    if not TABLE.exists():
        return {}
    (_, *kafkas), *rows = (line.split("\t") for line in TABLE.read_text().splitlines())
    found: dict[str, Ranges] = {kafka: {} for kafka in kafkas}
    for key, *cells in rows:
        for kafka, cell in zip(kafkas, cells, strict=True):
            if cell:
                low, _, high = cell.partition("-")
                found[kafka][int(key)] = (int(low), int(high))
    return found


def ask(host: str, port: int) -> Ranges:
    """Returns the ranges that the broker, or sidecar, at this address announces."""
    with socket.create_connection((host, port), timeout=20) as conn:
        conn.sendall(request_frame(Api.API_VERSIONS, 0, 1, "announced", False, b""))
        (size,) = SIZE.unpack(conn.recv(4, socket.MSG_WAITALL))
        frame = conn.recv(size, socket.MSG_WAITALL)
    res = av.ApiVersionsResponse.decode(0, frame, 4)
    assert res.error_code == 0, res
    return {k.api_key: (k.min_version, k.max_version) for k in res.api_keys}


def write(table: dict[str, Ranges]) -> None:
    kafkas = sorted(table, key=lambda kafka: [int(n) for n in kafka.split(".")])
    rows = [["api", *kafkas]]
    for key in sorted({key for ranges in table.values() for key in ranges}):
        cells = (table[kafka].get(key) for kafka in kafkas)
        rows.append([str(key), *("" if c is None else f"{c[0]}-{c[1]}" for c in cells)])
    TABLE.write_text("".join("\t".join(row) + "\n" for row in rows))


if __name__ == "__main__":
    version, address = sys.argv[1:]
    name, _, number = address.rpartition(":")
    write({**announced(), version: ask(name, int(number))})
