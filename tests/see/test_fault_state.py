"""Faults of the state topic and of who reads and writes it, and the alerts that they raise. The last one stays."""

from __future__ import annotations

import signal
import time

import pytest

from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.processes import Process, wait_until
from sidecar.state.codec import OWNER_CLAIM, Encoded
from sidecar.state.keys import encode_key
from tests.see.ground import CLASSIC, FIRES_S, MODERN, PARTITIONS, STATE, Fault, Ground, foreign

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]
CONFIGS = "org.apache.kafka.tools.ConfigCommand"


def test_the_state_topic_is_set_so_that_it_may_lose_state(ground: Ground) -> None:
    with ground.fault("state topic", "SidecarStateTopicFaults") as fault:
        ground.alter(STATE, "min.insync.replicas", "1")
        fault.until_firing()
        ground.alter(STATE, "min.insync.replicas", "2")


def in_turns(process: Process, stands_s: float, goes_s: float, fault: Fault) -> None:
    """Stop it and let it go on, again and again, until the alerts of the fault fire."""
    end = time.monotonic() + 60
    while not fault.fires <= fault.fired():
        assert time.monotonic() < end, f"{fault.name}: only {fault.fired()}"
        process.signal(signal.SIGSTOP)
        time.sleep(stands_s)
        process.signal(signal.SIGCONT)
        time.sleep(goes_s)


def test_the_loop_of_a_sidecar_is_held_up(ground: Ground) -> None:
    node = ground.owner(MODERN)
    assert node.sidecar is not None
    with ground.fault("held up", "SidecarLoopLag") as fault:
        in_turns(node.sidecar, 0.7, 0.4, fault)


def test_a_replica_of_the_state_topic_is_slow(ground: Ground) -> None:
    """A write waits for all replicas that are in sync."""
    node = next(n for n in ground.kafka.nodes if n not in (ground.owner(MODERN), ground.owner(CLASSIC)))
    assert node.process is not None
    with ground.fault("slow replica", "SidecarAppendSlow") as fault:
        in_turns(node.process, 2.0, 0.6, fault)


def test_a_tail_is_slow(ground: Ground) -> None:
    """The brokers give one sidecar less than others write. These are tombstones of claims that never were."""
    node = ground.kafka.nodes[0]
    name = f"sidecar-{node.node_id}-tail"
    what = ("--entity-type", "clients", "--entity-name", name)
    to = ("--bootstrap-server", ground.kafka.internal)
    with ground.fault("slow tail", "SidecarTailLags") as fault:
        done, said = ground.kafka.run_tool(CONFIGS, *to, "--alter", "--add-config", "consumer_byte_rate=50000", *what)
        assert done == 0, said
        never = Encoded(encode_key(OWNER_CLAIM, "", f"{1:020d}"), None, (("padding", b"." * 1_000),))

        def grows() -> bool:
            """A broker may not know the limit yet, so one burst could come through at once."""
            ground.write({0: [never] * 1_000})
            return fault.fires <= fault.fired()

        try:
            wait_until("the tail to fall behind", grows, FIRES_S, step_s=0.5)
        finally:
            done, said = ground.kafka.run_tool(CONFIGS, *to, "--alter", "--delete-config", "consumer_byte_rate", *what)
        assert done == 0, said


def test_a_record_is_damaged(ground: Ground) -> None:
    """The damage shows at the next takeover and not before."""
    group = "managed-damaged"
    key, partition = encode_key("member", group, "m"), partition_for(group, PARTITIONS)
    with ground.fault("damaged", "SidecarUnreadableGroups", "SidecarInvariantViolated") as fault:
        ground.write({partition: [Encoded(key, b"damaged")]})
        ground.start_anew(ground.owner(group))
        ground.kafka.wait_ready()
        fault.until_firing()
        ground.write({partition: [Encoded(key, None)]})
        ground.start_anew(ground.owner(group))
        ground.kafka.wait_ready()


def test_somebody_writes_who_is_not_the_owner(ground: Ground) -> None:
    """A record in the log cannot be taken back: this fault is the last one."""
    fault = ground.lasting_fault("void", "SidecarVoidRecords")
    ground.write(foreign("managed-foreign"))
    fault.until_firing()
