"""Every setting: its meaning, unit, default, and the meaning of 0. From command line, environment, YAML file, in that
order of precedence. Unknown keys are refused, and all faults are listed at once.

Environment: `SIDECAR_` and the path with `__` between its parts, as `SIDECAR_GROUPS__INCLUDE='["orders.*"]'`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.process.limits import LimitsSection
from sidecar.process.section import fits_kafkas_int
from sidecar.process.sections import (
    AdminAccess,
    Classic,
    Compat,
    Consumer,
    ExporterSection,
    Groups,
    LogSection,
    OffsetsSection,
    OwnershipSection,
    Share,
    State,
    Streams,
    TlsSection,
)
from sidecar.process.setting_kinds import Address, AdminAddress, ListenAddress, address_of, split


class SettingsError(Exception):
    """Faults of settings; the text has a line for each."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SIDECAR_", env_nested_delimiter="__", extra="forbid", frozen=True)
    _fits = field_validator("*")(fits_kafkas_int)

    listen: ListenAddress = Field(
        description="Where clients connect: HOST:PORT. `:PORT`, `*:PORT` and `[::]:PORT` are all addresses, of IPv4 and IPv6."
    )
    broker: Address = Field(description="The broker's listener for clients, behind this sidecar.")
    node_id: int = Field(ge=0, description="The broker's node id.")
    bootstrap: Annotated[
        str, Field(description="Brokers for the sidecar's own clients, comma separated; empty: `broker`.")
    ] = ""
    command_config: Path | None = Field(
        None,
        description="A file of Kafka's client properties: how the sidecar's own clients reach `bootstrap` "
        "(security.protocol, sasl.*, ssl.*). Read again when a broker refuses what it said, and on "
        "SIGHUP. Unset: PLAINTEXT.",
    )
    broker_command_config: Path | None = Field(
        None,
        description="The same for `broker`, the listener for clients, if it is secured in another way. Unset: as `command_config`.",
    )
    admin: AdminAddress | None = Field(
        None,
        description="HTTP: the page, /api/v1, /metrics, /livez, /readyz, /owners, /group, /about. HOST:PORT, or PORT on 127.0.0.1. None: off.",
    )
    broker_wait_ms: int = Field(
        60_000, ge=0, description="Give up at start if no broker answers for so long; 0: wait for ever."
    )
    role: str = Field(
        "both",
        pattern="^(both|front|coordinator)$",
        description="What this process is: both; or one of two that share `link`, the front holding the clients' connections.",
    )
    link: Path | None = Field(None, description="Unix socket between front and coordinator; not for role both.")
    metadata_refresh_ms: int = Field(
        2_000, ge=100, description="How often topics and leaders are read from the broker."
    )
    metadata_look_ms: int = Field(
        100,
        ge=10,
        description="Least time between two looks at topics beside that: for members that name or match unknown "
        "topics, and after topics were changed through us.",
    )
    settings_refresh_ms: int = Field(
        2_000, ge=100, description="How often the broker's group settings are read; a change through us counts at once."
    )
    authorisation_cache_ms: int = Field(
        10_000, ge=0, description="How long an answer of the broker's authorizer is kept; 0: ask every time."
    )
    takeover_hold_ms: int = Field(
        3_000,
        ge=0,
        description="A request for a group that is being taken over waits so long, and a join of a group of the broker's "
        "(1 s at least) until it is sure that it was not taken in. 0: COORDINATOR_LOAD_IN_PROGRESS at once.",
    )
    takeover_slice_ms: int = Field(
        3,
        ge=1,
        description="After a takeover groups are loaded in slices of so long; other work goes on in between.",
    )
    background_threads: int = Field(
        2,
        ge=1,
        description="group.coordinator.background.threads: for assignors. Regular expressions have one more thread.",
    )
    loop_probe_ms: int = Field(
        20, ge=0, description="How often sidecar_loop_lag_seconds looks whether the event loop is held up; 0: never."
    )
    drain_ms: int = Field(3_000, ge=0, description="At the end: how long to wait for answers under way.")
    groups: Groups = Groups()  # type: ignore[call-arg]
    consumer: Consumer = Consumer()  # type: ignore[call-arg]
    share: Share = Share()  # type: ignore[call-arg]
    streams: Streams = Streams()  # type: ignore[call-arg]
    classic: Classic = Classic()  # type: ignore[call-arg]
    compat: Compat = Compat()  # type: ignore[call-arg]
    state: State = State()  # type: ignore[call-arg]
    offsets: OffsetsSection = OffsetsSection()  # type: ignore[call-arg]
    ownership: OwnershipSection = OwnershipSection()  # type: ignore[call-arg]
    limits: LimitsSection = LimitsSection()  # type: ignore[call-arg]
    tls: TlsSection = TlsSection()  # type: ignore[call-arg]
    exporter: ExporterSection = ExporterSection()  # type: ignore[call-arg]
    log: LogSection = LogSection()  # type: ignore[call-arg]
    admin_access: AdminAccess = AdminAccess()  # type: ignore[call-arg]

    @model_validator(mode="after")
    def _linked(self) -> Settings:
        if (self.role == "both") != (self.link is None):
            raise ValueError(f"role {self.role} and link {self.link} do not go together: two processes share a link")
        return self

    @model_validator(mode="after")
    def _one_way(self) -> Settings:
        if not self.bootstrap and self.command_config is not None and self.broker_command_config is not None:
            raise ValueError("without `bootstrap` there is one listener: set command_config or broker_command_config")
        return self

    @field_validator("bootstrap")
    @classmethod
    def _bootstrap(cls, value: str) -> str:
        """Kafka, too, takes empty parts."""
        parts = [part for part in map(str.strip, value.split(",")) if part]
        for part in parts:
            address_of(part)
        return ",".join(parts)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (env_settings, init_settings)

    def own_bootstrap(self) -> list[tuple[str, int]]:
        return [split(a) for a in (self.bootstrap or self.broker).split(",")]


def load(config: Path | None, overrides: dict[str, Any]) -> Settings:
    """Raises SettingsError with every fault. `overrides` (command line) win over the environment, it over the file."""
    data: dict[str, Any] = {}
    faults: list[str] = []
    if config is not None:
        import yaml  # a tenth of a worker's start, and most sidecars have no file

        try:
            data = yaml.safe_load(config.read_text()) or {}
        except OSError as exc:
            raise SettingsError(f"{config}: {exc.strerror or exc}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as exc:  # not text; a date with a month 99
            raise SettingsError(f"{config}: {exc}") from None
        if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
            raise SettingsError(f"{config}: not a mapping of settings")
    given = {k: v for k, v in overrides.items() if v is not None}
    unread, problems = _unread_variables()
    faults += problems
    previous: dict[str, str | None] = {name: os.environ.pop(name) for name in unread}
    for key, value in given.items():
        name = f"SIDECAR_{key.upper()}"
        previous[name] = os.environ.get(name)
        os.environ[name] = str(value)
    try:
        settings = Settings(**data)
    except ValidationError as exc:
        from sidecar.process.setting_faults import words

        faults += [words(Settings, error) for error in exc.errors()]
    except Exception as exc:
        if type(exc).__name__ != "SettingsError":
            raise
        faults.append(str(exc))  # pydantic-settings: an environment value that is not JSON
    finally:
        for name, old in previous.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def _unread_variables() -> tuple[list[str], list[str]]:
    """Returns unreadable variables and the fault of each. Pydantic would report nothing else beside some of them."""
    unread, faults = [], []
    for variable, value in os.environ.items():
        if not variable.startswith("SIDECAR_"):
            continue
        path = variable[len("SIDECAR_") :].lower().split("__")
        kind = _kind(path)
        if kind is None:
            from sidecar.process.setting_faults import did_you_mean, nearest

            unread.append(variable)
            near = [part.upper() for part in nearest(Settings, path)]
            faults.append(f"{variable}: unknown setting in the environment{did_you_mean(near, '__', 'SIDECAR_')}")
        elif (section := _is_section(kind)) or get_origin(kind) is tuple:
            try:
                fits = isinstance(json.loads(value), dict) or not section
            except (ValueError, RecursionError):
                fits = False
            if not fits:
                from sidecar.process.setting_faults import not_json

                unread.append(variable)
                faults.append(not_json(variable, value, section))
    return unread, faults


def _kind(path: list[str]) -> Any:
    """Returns the type of this setting or section; None: there is none."""
    kind: Any = Settings
    for part in path:
        field = kind.model_fields.get(part) if _is_section(kind) else None
        if field is None:
            return None
        kind = field.annotation
    return kind


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
