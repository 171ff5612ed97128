"""A listing of topics says what is new in it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from sidecar.core.vocabulary.topics import TopicImage
from tests.core.share import world as share
from tests.core.streams import world as streams
from tests.core.world import Client, World, topic

JOINS: dict[str, tuple[Callable[[], Any], Callable[[Any, str], Any]]] = {
    "consumer": (World, lambda world, group_id: Client(world, group_id, "m", names=("in",))),
    "share": (share.World, lambda world, group_id: share.Client(world, group_id, "m", ("in",))),
    "streams": (streams.World, lambda world, group_id: streams.Client(world, "m", group_id)),
}
"""A world of each kind of group with epochs, and a member of a new group in it."""


def test_image_tells_what_changed() -> None:
    image, changed = TopicImage().next([topic(1, "a", 2), topic(2, "b", 1)])
    assert changed == {"a", "b"} and image.names_version == 1
    again, changed = image.next([topic(1, "a", 3), topic(2, "b", 1)])
    assert changed == {"a"} and again.names_version == 1
    assert again.hash_of(["a"]) != image.hash_of(["a"])
    assert again.hash_of(["missing"]) == 0
    made_anew, changed = again.next([topic(3, "a", 3)])
    assert changed == {"a", "b"} and made_anew.names_version == 1, "patterns match nothing more than before"
    assert made_anew.next([topic(3, "a", 3), topic(4, "c", 1)])[0].names_version == 2


@pytest.mark.parametrize("kind", JOINS)
def test_groups_do_not_keep_the_images_that_they_were_computed_from(kind: str) -> None:
    """Symptom: each group kept the list of all topics of its last change, so that a hundred groups of a large cluster
    took a hundred times its memory."""
    make, member_of = JOINS[kind]
    world, images = make(), []
    for n in range(10):
        listed = (topic(1, "in", 2), *(topic(2 + other, f"other-{other}", 1) for other in range(n)))
        world.apply(world.shard.topics_changed(*world.shard.image.next(listed), world.now))
        images.append(ref(world.shard.image))
        member = member_of(world, f"g{n}")
        member.heartbeat()
        member.heartbeat()
    gc.collect()
    assert len(world.shard.groups) == 10 and sum(image() is not None for image in images) == 1
