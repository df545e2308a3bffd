"""What keeps the rules of the tables: views with triggers.

rqlite has no interactive transactions: a verb is one request of fixed statements. What a verb
has to decide row by row stands in triggers, which every node runs alike, as all times and ids
are parameters. A view named ``do_…`` is a procedure: a row inserted into it is one call.
"""

from __future__ import annotations

from django_localqueue.backends.rqlite.schema import HISTORY, LAST_ID, MINUTE, SLOT
from django_localqueue.backends.rqlite.statements import CLAIMED, USABLE, taking

_ONE_SOURCE = ("op", "now", "until", "queue", "max_retries", "floor", "worker")
VIEWS = {
    "localqueue_do_claim": _ONE_SOURCE,
    "localqueue_do_exchange": (
        *_ONE_SOURCE,
        *("want", "boot", "ids", "count", "claim", "receipts", "results"),
    ),
    "localqueue_do_put_in_group": ("op", "now", "texts", "delay", "prio"),
    "localqueue_claimed": ("op", "job"),
    "localqueue_taken": ("op", "job"),
    "localqueue_do_put": ("op", "now", "queue", "jobs"),
    "localqueue_do_act": ("op", "now", "verb", "jobs", "found", "due", "target"),
    "localqueue_do_settle": (
        *("queue", "id", "receipt", "verb", "now", "boot", "delay", "max_retries", "result"),
        *("reason", "err_class", "err_message", "err_place", "traceback"),
    ),
}

_FACTS = f"op,json_array({','.join(column for column in CLAIMED if column != 'receipt')}) AS job"
#: Views that are no procedures: what was taken by the claims below, each job as one document,
#: which costs a node less than a row of columns.
BODIES = {
    "localqueue_claimed": f"""SELECT {_FACTS}
 FROM localqueue_ops CROSS JOIN localqueue_messages ON id=found""",
    "localqueue_taken": f"""SELECT {_FACTS} FROM localqueue_ops AS note CROSS JOIN
 localqueue_messages AS job INDEXED BY localqueue_lease ON queue=found AND state=3
 AND job.at=answer AND receipt=op||':'||id||':0'""",
}

# Putting one job in a group; the texts begin with the queue's name. ``found`` is the queue,
# negative where the job is to be blocked.
_PUT_IN_GROUP = [
    f"""INSERT INTO localqueue_ops(op,at,verb,answer,found)
 SELECT NEW.op,NEW.now,'put',max(NEW.now,1+{LAST_ID}),
 iif(EXISTS(SELECT 1 FROM localqueue_messages INDEXED BY localqueue_head
 WHERE queue=localqueue_queues.id AND grp=NEW.texts->>6 AND grp IS NOT NULL
 AND state IN(0,1,3)),-id,id) FROM localqueue_queues WHERE name=NEW.texts->>0""",
    """INSERT INTO localqueue_messages(id,queue,state,prio,since,at,created,payload,job_id,\
max_retries,task,headers,grp)
 SELECT answer,abs(found),iif(found<0,2,NEW.delay>0),NEW.prio,iif(NEW.delay,0,answer),
 CASE WHEN NEW.delay THEN at+NEW.delay WHEN found<0 THEN 0 ELSE answer END,at,
 NEW.texts->>1,NEW.texts->>2,NEW.texts->>3,NEW.texts->>4,NEW.texts->>5,NEW.texts->>6
 FROM localqueue_ops WHERE op=NEW.op""",
]

# Claims of one queue, which are prepared in less time than one of several.
_HEADS = f"""SELECT id FROM localqueue_messages INDEXED BY localqueue_ready
 WHERE queue=(SELECT id FROM localqueue_queues WHERE name=NEW.queue AND paused=0) AND state=0
 AND prio>=NEW.floor AND {USABLE.format("", "NEW.max_retries", "NEW.now")}
 ORDER BY prio DESC,since,id LIMIT"""
_TAKE = f"""{taking("NEW.now", "NEW.worker")}at=NEW.until,receipt=NEW.op||':'||id||':0'
 WHERE id"""
# ``found`` is the job.
_CLAIM = [
    f"""INSERT INTO localqueue_ops(op,at,verb,found)
 VALUES(NEW.op,NEW.now,'claim',coalesce(({_HEADS} 1),0))""",
    f"{_TAKE}=(SELECT found FROM localqueue_ops WHERE op=NEW.op)",
]
# By the claim whose receipts they all are, or by a document of receipts, each under "j" and the
# id, as the results are.
_ACK = """UPDATE localqueue_messages SET state=4,at=NEW.now,verb=1,result=NEW.results->>('j'||id),
 err_class=NULL,err_message=NULL,err_place=NULL
 WHERE id IN(SELECT value FROM json_each(NEW.ids))
 AND receipt=iif(NEW.receipts IS NULL,NEW.claim||':'||id||':0',NEW.receipts->>('j'||id))
 AND state=3 AND at>NEW.boot AND grp IS NULL"""
# ``found`` is the queue. A null as the time fails: then not all of them were live.
_ACKED = """INSERT INTO localqueue_ops(op,at,verb,answer,found)
 VALUES(NEW.op,iif(changes()=NEW.count,NEW.now,NULL),'ack',NEW.until,
 coalesce((SELECT id FROM localqueue_queues WHERE name=NEW.queue),0))"""

_LEAD = """(SELECT 1 FROM localqueue_messages INDEXED BY localqueue_head
    WHERE queue = NEW.queue AND grp = NEW.grp AND grp IS NOT NULL AND state IN (0, 1, 3))"""
_NEXT = """(SELECT id FROM localqueue_messages INDEXED BY localqueue_blocked
    WHERE queue = NEW.queue AND state = 2 AND grp = NEW.grp ORDER BY id LIMIT 1)"""
_ELDER = """(grp IS NOT NULL AND EXISTS (SELECT 1
      FROM localqueue_messages AS elder INDEXED BY localqueue_blocked
      WHERE elder.queue = localqueue_messages.queue AND elder.state = 2
        AND elder.grp = localqueue_messages.grp AND elder.id < localqueue_messages.id))"""


def _lead(carried: str, now: str, which: str) -> str:
    """Make a blocked job the lead of its group; its due time is in ``at``, 0 for none."""
    return f"""UPDATE localqueue_messages SET
    state = iif(at > {now}, 1, 0),
    since = iif(at > {now}, {carried}, max({carried}, since, at)),
    at = iif(at > {now}, at, max(since, at))
  WHERE {which}"""


# An unclaimed lead with a higher id gives way.
_STEP_BACK = """UPDATE localqueue_messages SET
    state = 2, since = iif(state = 0, at, 0), at = iif(state = 0, 0, at)
  WHERE queue = NEW.queue AND grp = NEW.grp AND grp IS NOT NULL AND state IN (0, 1)
    AND id > NEW.id"""

_CALLED_ONCE = "NOT EXISTS (SELECT 1 FROM localqueue_ops WHERE op = NEW.op)"
_LIVE = """EXISTS (SELECT 1 FROM localqueue_messages AS live
  WHERE live.id = NEW.id AND live.receipt = NEW.receipt AND live.state = 3
    AND (NEW.verb = 5 OR live.at > NEW.boot)
    AND live.queue = (SELECT id FROM localqueue_queues WHERE name = NEW.queue))"""

# How a delivery ends, as the values of the row before.
_ENDS = """(NEW.verb = 3 OR cancel = 1
      OR (NEW.verb IN (2, 5) AND attempts > coalesce(max_retries, NEW.max_retries)))"""
_OWN = f"iif(NEW.verb = 4, since, max(NEW.now, {LAST_ID}))"
_NAMED = "(SELECT value FROM json_each(NEW.jobs))"
# A finished job keeps its key until then; NULL where it has none any more.
_KEPT_KEY = "iif(unique_until > NEW.now, unique_until, NULL)"
_KEY_IS_HELD = """EXISTS (SELECT 1 FROM localqueue_messages AS holder INDEXED BY localqueue_unique
    WHERE holder.queue = {0}.queue AND holder.unique_key = {0}.unique_key
      AND holder.unique_until IS NOT NULL)"""

# Dead letters with an error that is nobody's wish, counted by what went wrong.
_ENTER_GROUP = [
    """INSERT INTO localqueue_failures
    (queue, err_class, place, task, total, first_at, last_at)
  VALUES (NEW.queue, coalesce(NEW.err_class, ''), coalesce(NEW.err_place, ''),
    coalesce(NEW.task, ''), 1, NEW.at, NEW.at)
  ON CONFLICT (queue, err_class, place, task) DO UPDATE SET total = total + 1,
    first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)""",
    """UPDATE localqueue_messages SET failure = (SELECT id FROM localqueue_failures
    WHERE queue = NEW.queue AND err_class = coalesce(NEW.err_class, '')
      AND place = coalesce(NEW.err_place, '') AND task = coalesce(NEW.task, ''))
  WHERE id = NEW.id""",
    f"""INSERT INTO localqueue_failure_counts
  SELECT failure, NEW.at / {SLOT}, 1 FROM localqueue_messages WHERE id = NEW.id
  ON CONFLICT (failure, slot) DO UPDATE SET n = n + 1""",
    f"""DELETE FROM localqueue_failure_counts
  WHERE failure = (SELECT failure FROM localqueue_messages WHERE id = NEW.id)
    AND slot < NEW.at / {SLOT} - {8 * 288}""",
]
_LEAVE_GROUP = [
    "UPDATE localqueue_failures SET total = total - 1 WHERE id = OLD.failure",
    f"""UPDATE localqueue_failure_counts SET n = n - 1
  WHERE failure = OLD.failure AND slot = OLD.at / {SLOT}""",
    """DELETE FROM localqueue_failure_counts WHERE failure IN
    (SELECT id FROM localqueue_failures WHERE id = OLD.failure AND total <= 0)""",
    "DELETE FROM localqueue_failures WHERE id = OLD.failure AND total <= 0",
]

TRIGGERS = {
    "localqueue_put_in_group": (
        "INSTEAD OF INSERT ON localqueue_do_put_in_group",
        _PUT_IN_GROUP,
    ),
    "localqueue_claim": ("INSTEAD OF INSERT ON localqueue_do_claim", _CLAIM),
    "localqueue_exchange": (
        "INSTEAD OF INSERT ON localqueue_do_exchange",
        [_ACK, _ACKED, f"{_TAKE} IN({_HEADS} NEW.want)"],
    ),
    "localqueue_failed_group": (
        "AFTER UPDATE OF ended ON localqueue_messages WHEN NEW.state = 5 AND OLD.state <> 5"
        " AND NEW.reason NOT IN ('cancelled', 'discarded')",
        [
            *_ENTER_GROUP,
            f"""INSERT INTO localqueue_activity (queue, minute, failed)
  VALUES (NEW.queue, NEW.at / {MINUTE}, 1)
  ON CONFLICT (queue, minute) DO UPDATE SET failed = failed + 1""",
        ],
    ),
    "localqueue_moved_group": (
        "AFTER UPDATE OF queue ON localqueue_messages WHEN OLD.failure IS NOT NULL",
        [*_LEAVE_GROUP, *_ENTER_GROUP],
    ),
    "localqueue_left_group": (
        "AFTER UPDATE OF failure ON localqueue_messages"
        " WHEN OLD.failure IS NOT NULL AND NEW.failure IS NULL",
        _LEAVE_GROUP,
    ),
    "localqueue_purged_group": (
        "AFTER DELETE ON localqueue_messages WHEN OLD.failure IS NOT NULL",
        _LEAVE_GROUP,
    ),
    # Whatever ends a lead lets the next of its group lead.
    "localqueue_next_leads": (
        "AFTER UPDATE OF ended ON localqueue_messages"
        " WHEN NEW.grp IS NOT NULL AND OLD.state IN (0, 1, 3) AND NEW.state IN (4, 5)",
        [_lead("OLD.since", "NEW.ended", f"id = {_NEXT}")],
    ),
    # One that was retried meanwhile leads instead of the lead that was given back.
    "localqueue_elder_leads": (
        "AFTER UPDATE OF ended ON localqueue_messages WHEN OLD.state = 3 AND NEW.state = 2",
        [_lead("OLD.since", "NEW.ended", f"id = {_NEXT}")],
    ),
    # A retried job leads if its id is the lowest: an unclaimed younger lead steps back.
    "localqueue_retried_leads": (
        "AFTER UPDATE OF cancel ON localqueue_messages WHEN OLD.state = 5 AND NEW.state = 2",
        [
            _STEP_BACK,
            _lead("0", "NEW.since", f"id = NEW.id AND NOT EXISTS {_LEAD}"),
        ],
    ),
    # A waiting job that came from another queue, blocked: the next of its old group leads there,
    # and it leads here if its id is the lowest, as one that was retried.
    "localqueue_moved_leads": (
        "AFTER UPDATE OF queue ON localqueue_messages WHEN NEW.grp IS NOT NULL AND NEW.state = 2",
        [
            _lead(
                "OLD.since",
                "NEW.ended",
                f"OLD.state IN (0, 1) AND id = {_NEXT.replace('NEW.queue', 'OLD.queue')}",
            ),
            _STEP_BACK,
            _lead("0", "NEW.ended", f"id = NEW.id AND NOT EXISTS {_LEAD}"),
        ],
    ),
    # jobs: a JSON array of [payload, job_id, delay, prio, grp, max_retries, task, headers,
    # expires, unique_key, unique_for, retention, once], in which no job_id comes twice. The answer
    # is the first id, given or not.
    "localqueue_put": (
        f"INSTEAD OF INSERT ON localqueue_do_put WHEN {_CALLED_ONCE}",
        [
            "INSERT OR IGNORE INTO localqueue_queues (name) VALUES (NEW.queue)",
            f"""INSERT INTO localqueue_ops (op, at, verb, answer)
  VALUES (NEW.op, NEW.now, 'put', max(NEW.now, 1 + {LAST_ID}))""",
            # Finished jobs let go of keys that are asked for, if their time is over.
            """UPDATE localqueue_messages SET unique_until = NULL WHERE state IN (4, 5) AND id IN (
    SELECT held.id FROM json_each(NEW.jobs) AS job
      CROSS JOIN localqueue_queues AS queues ON queues.name = NEW.queue
      CROSS JOIN localqueue_messages AS held INDEXED BY localqueue_unique
      ON held.queue = queues.id AND held.unique_key = job.value ->> 9
        AND held.unique_until IS NOT NULL AND held.unique_until <= NEW.now
    WHERE job.value ->> 9 IS NOT NULL)""",
            f"""INSERT INTO localqueue_messages (id, queue, state, prio, since, at, created,
    payload, job_id, max_retries, grp, task, headers, expires, unique_key, unique_until, retention)
  SELECT id, queue, CASE WHEN grp IS NOT NULL THEN 2 WHEN delay > 0 THEN 1 ELSE 0 END,
    prio, iif(delay > 0, 0, id),
    CASE WHEN delay > 0 THEN NEW.now + delay WHEN grp IS NOT NULL THEN 0 ELSE id END,
    NEW.now, payload, job_id, max_retries, grp, task, headers, NEW.now + expires, unique_key,
    iif(unique_key IS NULL, NULL, NEW.now + unique_for), retention
  FROM (SELECT first - 1 + row_number() OVER (ORDER BY place) AS id, * FROM (
    SELECT ops.answer AS first, job.key AS place, queues.id AS queue,
      row_number() OVER (PARTITION BY job.value ->> 9 ORDER BY job.key) AS rank,
      job.value ->> 0 AS payload, job.value ->> 1 AS job_id,
      job.value ->> 2 AS delay, job.value ->> 3 AS prio, job.value ->> 4 AS grp,
      job.value ->> 5 AS max_retries, job.value ->> 6 AS task, job.value ->> 7 AS headers,
      job.value ->> 8 AS expires, job.value ->> 9 AS unique_key,
      job.value ->> 10 AS unique_for, job.value ->> 11 AS retention
    FROM localqueue_ops AS ops CROSS JOIN localqueue_queues AS queues
      CROSS JOIN json_each(NEW.jobs) AS job
    WHERE ops.op = NEW.op AND queues.name = NEW.queue
      AND NOT EXISTS (SELECT 1 FROM localqueue_messages AS met INDEXED BY localqueue_job_id
        WHERE met.queue = queues.id AND met.job_id = job.value ->> 1
          AND met.job_id IS NOT NULL)
      AND (job.value ->> 12 IS NULL OR NOT EXISTS (SELECT 1 FROM localqueue_once AS known
        WHERE known.queue = queues.id AND known.job_id = job.value ->> 1))) AS fresh
    WHERE unique_key IS NULL OR (rank = 1 AND NOT {_KEY_IS_HELD.format("fresh")}))""",
            """INSERT OR IGNORE INTO localqueue_once (queue, job_id, at)
  SELECT queues.id, job.value ->> 1, NEW.now FROM localqueue_queues AS queues
    CROSS JOIN json_each(NEW.jobs) AS job
  WHERE queues.name = NEW.queue AND job.value ->> 12 IS NOT NULL""",
            # A group without a lead had no other jobs that wait: its first new one leads.
            _lead(
                "0",
                "NEW.now",
                """id IN (SELECT min(fresh.id) FROM localqueue_messages AS fresh
    WHERE fresh.id >= (SELECT CAST(answer AS INTEGER) FROM localqueue_ops WHERE op = NEW.op)
      AND fresh.state = 2 AND NOT EXISTS (SELECT 1
        FROM localqueue_messages AS lead INDEXED BY localqueue_head
        WHERE lead.queue = fresh.queue AND lead.grp = fresh.grp AND lead.grp IS NOT NULL
          AND lead.state IN (0, 1, 3))
    GROUP BY fresh.grp)""",
            ),
        ],
    ),
    "localqueue_settle": (
        f"INSTEAD OF INSERT ON localqueue_do_settle WHEN {_LIVE}",
        [
            """INSERT INTO localqueue_history
  SELECT id, 1 + coalesce((SELECT max(n) FROM localqueue_history WHERE message = NEW.id), 0),
    attempts, coalesce(worker, ''), coalesce(started, 0), NEW.now,
    CASE NEW.verb WHEN 2 THEN 'nack' WHEN 3 THEN 'fail' ELSE 'lapsed' END,
    NEW.err_class, NEW.err_message, NEW.err_place, NEW.traceback
  FROM localqueue_messages WHERE id = NEW.id AND NEW.verb IN (2, 3, 5)""",
            f"""DELETE FROM localqueue_history WHERE message = NEW.id
    AND n <= (SELECT max(n) FROM localqueue_history WHERE message = NEW.id) - {HISTORY}""",
            f"""UPDATE localqueue_messages SET
    state = CASE WHEN NEW.verb = 1 THEN 4 WHEN {_ENDS} THEN 5 WHEN {_ELDER} THEN 2
      WHEN NEW.delay > 0 THEN 1 ELSE 0 END,
    since = CASE WHEN NEW.verb = 1 OR {_ENDS} THEN since
      WHEN {_ELDER} THEN iif(NEW.delay > 0, 0, {_OWN})
      WHEN NEW.delay > 0 THEN iif(grp IS NULL, 0, since) ELSE max(since, {_OWN}) END,
    at = CASE WHEN NEW.verb = 1 OR {_ENDS} THEN NEW.now
      WHEN NEW.delay > 0 THEN NEW.now + NEW.delay WHEN {_ELDER} THEN 0 ELSE {_OWN} END,
    verb = NEW.verb, ended = NEW.now,
    unique_until = iif(NEW.verb = 1 OR {_ENDS}, {_KEPT_KEY}, unique_until),
    attempts = attempts - (NEW.verb = 4),
    reason = CASE WHEN NEW.verb = 1 OR NOT {_ENDS} THEN reason WHEN NEW.verb = 3 THEN NEW.reason
      WHEN cancel = 1 THEN 'cancelled' ELSE 'exhausted' END,
    result = iif(NEW.verb = 1, NEW.result, result),
    err_class = iif(NEW.verb = 1 OR NEW.err_message IS NOT NULL, NEW.err_class, err_class),
    err_place = iif(NEW.verb = 1 OR NEW.err_message IS NOT NULL, NEW.err_place, err_place),
    err_message = iif(NEW.verb = 1, NULL, coalesce(NEW.err_message, err_message))
  WHERE id = NEW.id""",
        ],
    ),
    # What is done to jobs from outside; ``jobs`` is a JSON array of their ids.
    "localqueue_act": (
        f"INSTEAD OF INSERT ON localqueue_do_act WHEN {_CALLED_ONCE}",
        [
            """INSERT INTO localqueue_ops (op, at, verb, answer, found)
  VALUES (NEW.op, NEW.now, NEW.verb, NEW.jobs, NEW.found)""",
            # As when a key is put: what is finished, and whose time is over, lets go of it.
            f"""UPDATE localqueue_messages SET unique_until = NULL
  WHERE NEW.verb IN ('retry', 'move') AND state IN (4, 5) AND unique_until <= NEW.now
    AND (id IN {_NAMED} OR id IN (
      SELECT held.id FROM json_each(NEW.jobs) AS job
        CROSS JOIN localqueue_messages AS meant ON meant.id = job.value
        CROSS JOIN localqueue_messages AS held INDEXED BY localqueue_unique
        ON held.queue = coalesce((SELECT id FROM localqueue_queues WHERE name = NEW.target),
            meant.queue)
          AND held.unique_key = meant.unique_key AND held.unique_until IS NOT NULL))""",
            f"""UPDATE localqueue_messages SET state = iif(grp IS NULL, 0, 2),
    since = max(NEW.now, {LAST_ID}), at = iif(grp IS NULL, max(NEW.now, {LAST_ID}), 0),
    attempts = 0, cancel = 0, reason = NULL, failure = NULL, expires = NULL,
    unique_until = iif(unique_key IS NULL OR {_KEY_IS_HELD.format("localqueue_messages")},
      unique_until, 0)
  WHERE NEW.verb = 'retry' AND state = 5 AND id IN {_NAMED}""",
            f"""UPDATE localqueue_messages SET state = 0, since = max(since, NEW.now, {LAST_ID}),
    at = max(NEW.now, {LAST_ID})
  WHERE NEW.verb = 'run_now' AND state = 1 AND id IN {_NAMED}""",
            f"""UPDATE localqueue_messages
    SET state = 1, since = iif(grp IS NULL, 0, since), at = NEW.due
  WHERE NEW.verb = 'delay' AND state IN (0, 1) AND id IN {_NAMED}""",
            """INSERT OR IGNORE INTO localqueue_queues (name)
  SELECT NEW.target WHERE NEW.verb = 'move'""",
            # A group's job arrives blocked, its own time in ``since``: a trigger sees to the leads.
            f"""UPDATE localqueue_messages
    SET queue = (SELECT id FROM localqueue_queues WHERE name = NEW.target),
    ended = iif(state = 5, ended, NEW.now),
    since = CASE WHEN grp IS NULL OR state IN (2, 5) THEN since WHEN state = 0 THEN at ELSE 0 END,
    at = iif(grp IS NOT NULL AND state = 0, 0, at),
    state = iif(grp IS NOT NULL AND state IN (0, 1), 2, state)
  WHERE NEW.verb = 'move' AND state IN (0, 1, 2, 5) AND id IN {_NAMED}""",
            f"""UPDATE localqueue_messages SET reason = NEW.verb, at = NEW.now, failure = NULL
  WHERE NEW.verb = 'discarded' AND state = 5 AND id IN {_NAMED}""",
            f"""UPDATE localqueue_messages SET state = 5, at = NEW.now, ended = NEW.now,
    reason = NEW.verb, unique_until = {_KEPT_KEY}
  WHERE NEW.verb IN ('cancelled', 'discarded') AND state IN (0, 1, 2) AND id IN {_NAMED}""",
            f"""UPDATE localqueue_messages SET cancel = 1
  WHERE NEW.verb = 'stop' AND state = 3 AND id IN {_NAMED}""",
            f"""UPDATE localqueue_meta SET value = {LAST_ID}
  WHERE NEW.verb = 'purge' AND name = 'last_id'""",
            f"DELETE FROM localqueue_history WHERE NEW.verb = 'purge' AND message IN {_NAMED}",
            f"""DELETE FROM localqueue_messages
  WHERE NEW.verb = 'purge' AND state IN (4, 5) AND id IN {_NAMED}""",
        ],
    ),
}
