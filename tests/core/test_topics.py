"""A listing of topics says what is new in it."""

from __future__ import annotations

from sidecar.core.vocabulary.topics import TopicImage
from tests.core.world import topic


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
