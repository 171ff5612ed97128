"""Checks that the files in the settings can be used, for `sidecar config check`. A start reads them itself."""

from __future__ import annotations

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.front.certificates import TlsError, read_context
from sidecar.process.admin_access import AdminFault, read_tokens, tls_context
from sidecar.process.broker_credentials import read_properties
from sidecar.process.listening import tls_settings
from sidecar.process.settings import Settings


def unusable(s: Settings) -> list[str]:
    """Returns the faults, in the words of a start that fails. Files of a part that is off are not read."""
    faults = []
    for name, path in (("command_config", s.command_config), ("broker_command_config", s.broker_command_config)):
        try:
            read_properties(name, path)
        except StartError as exc:
            faults.append(str(exc))
    tls = tls_settings(s) if s.role != "coordinator" else None
    if tls is not None:
        try:
            read_context(tls)
        except TlsError as exc:
            faults.append(str(exc))
    return faults + (_unusable_to_admin(s) if s.admin is not None else [])


def _unusable_to_admin(s: Settings) -> list[str]:
    faults = []
    if s.admin_access.token_file is not None:
        try:
            read_tokens(s.admin_access.token_file)
        except AdminFault as exc:
            faults.append(f"admin_access.{exc}")
    if s.admin_access.tls_certificate is not None:
        try:
            tls_context(s.admin_access)
        except AdminFault as exc:
            faults.append(f"admin_access.{exc}")
    return faults
