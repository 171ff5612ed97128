"""Partitions of share groups that no member must hold: the broker has not initialised them, or no member subscribes to
their topic.

They count as held by a member without a name, so ownership.py finds only those unowned that a member should have had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.steps import GROUP, before_cuts, begun_or_ended, chain, left

PLACE = f"{GROUP}, topic_key, partition"
EVER = -1
"""Offset before all records: no member must hold the partition until a record says so."""
NO_MEMBER = ""
"""Id of the member that holds the partitions which no member must hold."""


class Wanted(NamedTuple):
    events: Frame
    """Events of holdings."""
    initialised: Frame
    subscribed: Frame
    topics: Frame
    """Topics that members subscribe to, and since when."""
    made: Frame
    """Places that were initialised, `since_offset`: the record from which `after_ms` counts; 0: nobody subscribes."""


def wanted(placeholders: Frame, members: Frame, holdings: Frame, was: Mapping[str, Frame]) -> Wanted:
    """Returns events of the nameless member, and the state that the next batch needs. `placeholders`, `members`: valid
    records; `holdings`: events of holdings; `was`: what the last batch left."""
    value = "case when not deleted then {} end as value".format
    new, old = f"'' as member_id, {value('initialised')}", "'' as member_id, initialised as value"
    shown = chain(new, old, placeholders, was["initialised"])
    new, old = f"member_id, {value('topic_names')}", "member_id, topic_names as value"
    named = chain(new, old, members, was["subscribed"])
    places = shown.query(f"""
        with a as (select {GROUP}, n, log_ms, written_ms, why, unnest(value) as t, 1 as gain from {shown}
                union all select {GROUP}, n, log_ms, written_ms, why, unnest(before), -1 from {shown})
            select {GROUP}, n, log_ms, written_ms, why, t.topic_id as topic_key, t.topic as topic,
                unnest(t.partitions) as partition, gain from a""").computed()
    topics = begun_or_ended(named)
    events = _events(places, topics, holdings, was["intervals"])
    # Subscriptions that the last batch left open are in no new record.
    line = topics.query(f"""select {GROUP}, topic, n, log_ms, written_ms, now from {topics} where n >= 0
        union all select {GROUP}, topic, n, log_ms, written_ms, 1 from {was["wanted_topics"]}""").computed()
    latest = line.query(f"""select * exclude (latest, now) from (select *, lead(1) over
        (partition by {GROUP}, topic order by n) is null as latest from {line}) where latest and now > 0""")
    last = left(shown, "initialised"), left(named, "topic_names")
    return Wanted(events, *last, latest, _initialised(places, line))


def _initialised(places: Frame, topics: Frame) -> Frame:
    """With the record since which a member subscribes to the topic, if one does then."""
    return places.query(f"""with a as (select {PLACE}, n, max(topic) as topic, any_value(log_ms) as ms,
                any_value(written_ms) as written_ms from {places} where n >= 0 group by {PLACE}, n
                having sum(gain) > 0),
            b as (select a.*, t.now > 0 as wanted, t.n as t_n, t.log_ms as t_ms, t.written_ms as t_written_ms
                from a asof left join {topics} t on a.state_partition = t.state_partition
                    and a.group_id = t.group_id and a.topic = t.topic and a.n >= t.n)
            select state_partition, group_id, topic_key as topic_id, topic, partition, n as offset, ms, written_ms,
                case when wanted then t_n end as subscribed_offset, case when wanted then t_ms end as subscribed_ms,
                case when wanted then t_written_ms end as subscribed_written_ms,
                case when wanted then ms - t_ms end as after_ms,
                case when wanted then t_n else 0 end as since_offset from b""")


def _events(places: Frame, topics: Frame, holdings: Frame, held: Frame) -> Frame:
    """Events of the nameless member. It holds a new partition unless a member must hold it at once."""
    line = places.query(f"""with a as (select {PLACE}, max(topic) as topic from {places} group by {PLACE}),
            b as (select {PLACE}, n, log_ms, written_ms, why, gain, 0 as on_off from {places}
                union all select {GROUP}, a.topic_key, a.partition, t.n, t.log_ms, t.written_ms, t.why, 0,
                    case when t.now > 0 then 1 else -1 end
                    from a join {topics} t using ({GROUP}, topic)),
            c as (select {PLACE}, n, any_value(log_ms) as log_ms, any_value(written_ms) as written_ms,
                    any_value(why) as why, sum(gain) as gain, sum(on_off) as on_off from b group by {PLACE}, n),
            d as (select *, sum(gain) over w > 0 and sum(on_off) over w > 0 as wanted from c
                window w as (partition by {PLACE} order by n))
            select d.*, a.topic, wanted <> lag(wanted, 1, false) over w as changed from d join a using ({PLACE})
            window w as (partition by {PLACE} order by n)""").computed()
    rest = "true as exact, offset - 1 as not_before, 0 as missing, null as epoch, null as b_epoch"
    return line.query(f"""with known as (select {PLACE} from {line} where changed and n < 0
                    union select {PLACE} from {held} where kind = 'share' and member_id = '{NO_MEMBER}'),
                new as (select {PLACE}, max(topic) as topic from (
                    select {PLACE}, topic from {holdings} where kind = 'share'
                    union all select {PLACE}, topic from {line} where changed and n >= 0)
                    anti join known using ({PLACE}) group by {PLACE}),
                a as (select {PLACE}, topic, case when wanted then 'x' else 'a' end as type, n as offset,
                        log_ms as ms, written_ms, why from {line} where changed and n >= 0
                    union all select {PLACE}, topic, 'a', {EVER}, null, null, null from new)
            select *, 'share' as kind, '{NO_MEMBER}' as member_id, {rest} from a""")


def coverage(unowned: Frame, cuts: Frame) -> Frame:
    """Lowers findings behind the first gap in the log to `possible`: members may have joined or left there."""
    columns = ", ".join(f"nullif({c}, '{NO_MEMBER}') as {c}" for c in ("former_member_id", "member_id"))
    return before_cuts(unowned.where("kind = 'share'").select(f"* replace ({columns})"), cuts, "to_offset")
