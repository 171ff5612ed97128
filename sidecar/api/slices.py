"""Large requests in slices: between two of them the event loop turns, so that none holds it up for long.

What is counted is elements of arrays, about a microsecond each. A small message is read and written in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

from sidecar.api.call import PAUSE, Call, Want
from sidecar.wire.frames import SMALL_BYTES as SMALL_BYTES
from sidecar.wire.primitives import WireError

SLICE = 4_096
"""Elements that are read or written before the loop turns."""
CHECKED = 1_024
"""Elements of slower work before the loop turns: names that are compared with the patterns of groups."""
COORDINATOR_REQUESTS = 64
"""Requests to the coordinator before the loop turns."""
STRIDE = 256
"""Elements between two looks at their number, as in the generated codec."""


class Message(Protocol):
    def encode(self, version: int) -> bytes: ...
    def encode_in_slices(self, version: int, out: bytearray) -> Generator[int, None, None]: ...


T = TypeVar("T")
Made = TypeVar("Made")
Sorted = TypeVar("Sorted", str, bytes)
Read = TypeVar("Read", covariant=True)


class Readable(Protocol[Read]):
    @staticmethod
    def decode(version: int, buf: bytes, pos: int = 0) -> Read: ...
    @staticmethod
    def decode_in_slices(version: int, buf: bytes, pos: int = 0) -> Generator[int, None, Read]: ...


class TooManyElements(WireError):
    """The request has more elements than `limits.request_elements` allows."""


def small(call: Call) -> bool:
    return len(call.frame) <= SMALL_BYTES


def request(call: Call, message: type[Readable[T]], pos: int = 0) -> Generator[Want, Any, T]:
    """Reads the client's request; its body begins at `pos` if that is not `call.pos`. Raises WireError, also if it has
    too many elements: these are counted before they are made."""
    pos = pos or call.pos
    if small(call):
        return message.decode(call.version, call.frame, pos)
    steps = message.decode_in_slices(call.version, call.frame, pos)
    most = call.scope.sizes.request_elements
    return (yield from _paused(steps, lambda count: _check(call, count, most)))


def _check(call: Call, count: int, most: int) -> None:
    if count > most:
        call.scope.cut("request_elements")
        raise TooManyElements(f"more than {most} elements")


def decoded(message: type[Readable[T]], version: int, frame: bytes, pos: int = 0) -> Generator[Want, Any, T]:
    """Returns a message that is not the client's request: the broker's answer, or one that was encoded here."""
    if len(frame) - pos <= SMALL_BYTES:
        return message.decode(version, frame, pos)
    return (yield from _paused(message.decode_in_slices(version, frame, pos)))


def only(answers: list[T]) -> T:
    """Returns the broker's one answer. Raises WireError if there is not exactly one."""
    if len(answers) != 1:
        raise WireError("the broker's answer lacks what it was asked")
    return answers[0]


def encoded(message: Message, version: int, at_once: bool = False) -> Generator[Want, Any, bytes]:
    if at_once:
        return message.encode(version)
    out = bytearray()
    yield from _paused(message.encode_in_slices(version, out))
    return bytes(out)


def _paused(
    steps: Generator[int, None, T], seen: Callable[[int], None] = lambda count: None
) -> Generator[Want, Any, T]:
    count = done = 0
    try:
        while True:
            n = next(steps)
            count += n
            done += n or STRIDE
            if done >= SLICE:
                seen(count)
                done = 0
                yield PAUSE
    except StopIteration as ended:
        seen(count)
        result: T = ended.value
        return result


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, CHECKED)):
        yield part


def pause(call: Call) -> Generator[Want, Any, None]:
    """Pauses between two steps of a large request that take some ms each."""
    if not small(call):
        yield PAUSE


def turns(count: int) -> Generator[Want, Any, None]:
    """Pauses after each `COORDINATOR_REQUESTS` requests to the coordinator."""
    if count % COORDINATOR_REQUESTS == COORDINATOR_REQUESTS - 1:
        yield PAUSE


def sorted_once(items: Iterable[Sorted]) -> Generator[Want, Any, list[Sorted]]:
    """Returns each of the items once, in order."""
    once = list(dict.fromkeys(items))
    if len(once) > CHECKED:
        yield PAUSE
    once.sort()
    if len(once) > CHECKED:
        yield PAUSE
    return once


def as_asked(
    names: Iterable[Hashable], answers: list[T], name: Callable[[T], Hashable]
) -> Generator[Want, Any, list[T]]:
    """Returns the answers in the order of the request, as a broker has those to an OffsetFetch. Some are the broker's
    and some the coordinator's, and a client may count on the order."""
    waiting: dict[Hashable, list[T]] = {}
    yield from each(reversed(answers), lambda a: waiting.setdefault(name(a), []).append(a))
    ordered: list[T] = []

    def take(key: Hashable) -> None:
        if left := waiting.get(key):
            ordered.append(left.pop())

    yield from each(names, take)
    return ordered


def made(items: Iterable[T], make: Callable[[T], Made]) -> Generator[Want, Any, list[Made]]:
    """Returns the results of `make` for each item."""
    results: list[Made] = []
    for i, part in enumerate(_parts(items)):
        if i:
            yield PAUSE
        results += map(make, part)
    return results


def each(items: Iterable[T], act: Callable[[T], object]) -> Generator[Want, Any, None]:
    """Calls `act` for each item."""
    for i, part in enumerate(_parts(items)):
        if i:
            yield PAUSE
        for x in part:
            act(x)


def chosen(items: Iterable[T], test: Callable[[T], Any]) -> Generator[Want, Any, list[T]]:
    """Returns the items that pass the test."""
    passed: list[T] = []
    for i, part in enumerate(_parts(items)):
        if i:
            yield PAUSE
        passed += [x for x in part if test(x)]
    return passed
