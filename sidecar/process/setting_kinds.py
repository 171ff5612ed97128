"""Kinds of values that settings have: addresses, names of topics, regular expressions."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from sidecar.core.vocabulary.group_patterns import reason_against
from sidecar.core.vocabulary.internal_topics import TOPIC_NAME


def address_of(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT")
    try:
        host.encode("idna")
    except UnicodeError:  # each resolver call would fail
        raise ValueError(f"{text!r} has no name of a host: a part of it is empty, or too long") from None
    return text


Address = Annotated[str, AfterValidator(address_of)]


def listen_address(text: str) -> str:
    """Checks a listen address. `:PORT` and `*:PORT` are this port of all addresses, as in Kafka's `listeners`."""
    address_of(f"*{text}" if text.startswith(":") else text)
    return text


ListenAddress = Annotated[str, AfterValidator(listen_address)]


def admin_address(text: str) -> str:
    """Checks an admin address. PORT alone is a port on this machine."""
    return listen_address(f"127.0.0.1:{text}" if text.isdigit() else text)


AdminAddress = Annotated[str, BeforeValidator(lambda given: admin_address(str(given)))]


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def topic_name(text: str) -> str:
    if not TOPIC_NAME.match(text):
        raise ValueError(f"{text!r} is no topic's name: 1 to 249 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`")
    return text


TopicName = Annotated[str, AfterValidator(topic_name)]


def compiled(value: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in value:
        if reason := reason_against(pattern):
            raise ValueError(f"{pattern!r} is no regular expression: {reason}")
    return value
