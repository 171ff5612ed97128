"""Partitions of share groups that no member must hold: the broker has not initialised them, or no member subscribes to
their topic.

They count as held by a member without a name, so ownership.py finds only those unowned that a member should have had.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.steps import GROUP, begun_or_ended

PLACE = f"{GROUP}, topic_key, partition"
EVER = -1
"""Offset before all records: no member must hold the partition until a record says so."""
NO_MEMBER = ""
"""Id of the member that holds the partitions which no member must hold."""


def wanted(b: Batch, holdings: Frame) -> Frame:
    """Returns events of the nameless member. `holdings`: events of all others."""
    shown = b.changes("initialised", b.valid("share_placeholders"), "initialised", "'' as member_id")
    named = b.changes("subscribed", b.valid("share_members"), "topic_names")
    places = shown.query(f"""
        with a as (select {GROUP}, n, rec, why, unnest(value) as t, 1 as gain from {shown}
                union all select {GROUP}, n, rec, why, unnest(before), -1 from {shown})
            select {GROUP}, n, rec, why, t.topic_id as topic_key, t.topic as topic, unnest(t.partitions) as partition,
                gain from a""").computed()
    topics = begun_or_ended(named)
    # Subscriptions that the last batch left open are in no new record.
    line = topics.query(f"""select {GROUP}, topic, n, rec, now from {topics} where n >= 0
        union all select {GROUP}, topic, n, rec, 1 from {b.was["wanted_topics"]}""").computed()
    latest = f"lead(1) over (partition by {GROUP}, topic order by n) is null"
    b.carry("wanted_topics", line.query(f"select * from {line} qualify {latest} and now > 0"))
    b.add("share_initialised", _initialised(places, line))
    return _events(places, topics, holdings, b.was["intervals"])


def _initialised(places: Frame, topics: Frame) -> Frame:
    """With the record since which a member subscribes to the topic, if one does then. `since_offset`: the record from
    which `after_ms` counts; 0: nobody subscribes."""
    return places.query(f"""with a as (select {PLACE}, n, max(topic) as topic, any_value(rec) as rec
                from {places} where n >= 0 group by {PLACE}, n
                having sum(gain) > 0),
            b as (select a.*, case when t.now > 0 then t end as t from a asof left join {topics} t
                using ({GROUP}, topic, n))
            select {GROUP}, topic_key as topic_id, topic, partition, rec, t.rec as subscribed_rec,
                rec.ms - t.rec.ms as after_ms, coalesce(t.n, 0) as since_offset from b""")


def _events(places: Frame, topics: Frame, holdings: Frame, held: Frame) -> Frame:
    """Events of the nameless member. It holds a new partition unless a member must hold it at once."""
    line = places.query(f"""with a as (select {PLACE}, max(topic) as topic from {places} group by {PLACE}),
            b as (select {PLACE}, n, rec, why, gain, 0 as on_off from {places}
                union all select {GROUP}, a.topic_key, a.partition, t.n, t.rec, t.why, 0,
                    case when t.now > 0 then 1 else -1 end
                    from a join {topics} t using ({GROUP}, topic)),
            c as (select {PLACE}, n, any_value(rec) as rec, any_value(why) as why, sum(gain) as gain,
                    sum(on_off) as on_off from b group by {PLACE}, n),
            d as (select *, sum(gain) over w > 0 and sum(on_off) over w > 0 as wanted from c
                window w as (partition by {PLACE} order by n))
            select d.*, a.topic, wanted <> lag(wanted, 1, false) over w as changed from d join a using ({PLACE})
            window w as (partition by {PLACE} order by n)""").computed()
    return line.query(f"""with known as (select {PLACE} from {line} where changed and n < 0
                    union select {PLACE} from {held} where kind = 'share' and member_id = '{NO_MEMBER}'),
                new as (select {PLACE}, max(topic) as topic from (
                    select {PLACE}, topic from {holdings} where kind = 'share'
                    union all select {PLACE}, topic from {line} where changed and n >= 0)
                    anti join known using ({PLACE}) group by {PLACE}),
                a as (select {PLACE}, topic, case when wanted then 'x' else 'a' end as type, n as offset,
                        rec, why from {line} where changed and n >= 0
                    union all by name select *, 'a' as type, {EVER} as offset,
                        struct_pack(offset := {EVER}::bigint, ms := null::bigint, written_ms := null::bigint) as rec
                        from new)
            select *, 'share' as kind, '{NO_MEMBER}' as member_id, true as exact, offset - 1 as not_before,
                0 as missing from a""")


def as_coverage(unowned: Frame) -> Frame:
    """Returns unowned time with the columns of the table, where the nameless member is nobody."""
    columns = ", ".join(f"nullif({c}, '{NO_MEMBER}') as {c}" for c in ("former_member_id", "member_id"))
    return unowned.where("kind = 'share'").select(f"* replace ({columns})")
