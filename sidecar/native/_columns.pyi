from typing import Any

def columns(
    program: bytes, data: Any, offsets: Any, first: int, which: Any, skip: int
) -> tuple[bytes, list[tuple[int, bytes, bytes | None]]]: ...
