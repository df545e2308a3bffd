"""The short ways of put, ack, claim and exchange: what most calls need, in few, short statements.

Each request notes its operation in ``localqueue_ops`` and presumes what is mostly so. Where it
isn't so, or where an earlier copy was applied, a constraint fails, all is rolled back, and
``GuardFailed`` is raised; the statements of ``statements`` then do it with the same operation.
Every node parses and prepares each statement anew, so words cost, and ephemeral tables, as
``IN`` and ``RETURNING`` make them, cost most.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.records import document
from django_localqueue.transports.answers import Result
from django_localqueue.transports.statements import Statement, looks_like_blob

#: What the text of a failed constraint holds where a request is not for the short way.
GUARD = "localqueue_"

_PUT_OP = f"""INSERT INTO localqueue_ops(op,at,verb,answer,found)
 SELECT ?1,?2,'put',max(?2,1+{schema.LAST_ID}),id FROM localqueue_queues WHERE name=?3->>0"""
_PUT = """INSERT INTO localqueue_messages(id,queue,state,prio,since,at,created,payload,job_id,\
max_retries,task,headers)
 SELECT answer,found,?3>0,?4,iif(?3,0,answer),iif(?3,at+?3,answer),at,?2->>0,?2->>1,?2->>2,\
?2->>3,?2->>4 FROM localqueue_ops WHERE op=?1"""
_PUT_IN_GROUP = """INSERT INTO localqueue_do_put_in_group VALUES(?1,?2,?3,?4,?5)
 RETURNING (SELECT json_array(answer,found) FROM localqueue_ops WHERE op=?1)"""
# Of many in one statement, by their place in the document.
_PUT_MANY = """INSERT INTO localqueue_messages(id,queue,state,prio,since,at,created,payload,job_id,\
max_retries,task,headers)
 SELECT answer+key,found,value->>2>0,value->>3,iif(value->>2,0,answer+key),\
iif(value->>2,at+(value->>2),answer+key),at,value->>0,value->>1,value->>4,value->>5,value->>6
 FROM localqueue_ops CROSS JOIN json_each(?2) WHERE op=?1"""


def put(op: str, now: int, queue: str, rows: Sequence[Sequence[Any]]) -> list[Statement] | None:
    """Store simple jobs; ``stored`` reads the results.

    None: not for jobs with a unique key, an expiry or a retention, nor for those put once, nor
    for several of which one is in a group.
    """
    if any(option is not None for row in rows for option in (row[8], row[9], row[11], row[12])):
        return None
    if len(rows) > 1:
        if any(row[4] is not None for row in rows):
            return None
        many = document([[*row[:4], *row[5:8]] for row in rows])
        return [[_PUT_OP, op, now, document([queue])], [_PUT_MANY, op, many]]
    payload, job_id, delay, prio, group, max_retries, task, headers, *_ = rows[0]
    texts = [payload, job_id, max_retries, task, headers]
    if group is None:
        first: Statement = [_PUT_OP, op, now, document([queue])]
        return [first, [_PUT, op, document(texts), delay, prio]]
    named = document([queue, *texts, group])
    return [[_PUT_IN_GROUP, op, now, named, delay, prio]]


def stored(
    results: Sequence[Result], rows: Sequence[Sequence[Any]]
) -> tuple[int, list[Any]] | None:
    """Return the first id of what ``put`` stored, and where it stands as ``put_ids`` wants it.

    None: the queue is new, and nothing was done.
    """
    if len(results) > 1:
        jobs = results[1]
        return (jobs.last_insert_id - len(rows) + 1, []) if jobs.rows_affected else None
    ((told,),) = results[0].rows
    if told is None:
        return None
    id, queue = json.loads(told)
    return int(id), [(rows[0][1], int(id), schema.BLOCKED, 0, None)] if queue < 0 else []


_ACK = """UPDATE localqueue_messages SET state=4,at=?1,verb=1,result=?2->>0,err_class=NULL,\
err_message=NULL,err_place=NULL WHERE id=?3 AND receipt=?4 AND state=3 AND at>?5 AND grp IS NULL"""
# By documents of receipts and results, each under "j" and the id.
_ACKS = """UPDATE localqueue_messages SET state=4,at=?1,verb=1,result=?3->>('j'||id),\
err_class=NULL,err_message=NULL,err_place=NULL
 WHERE id IN(SELECT substr(key,2)+0 FROM json_each(?2)) AND receipt=?2->>('j'||id)
 AND state=3 AND at>?4 AND grp IS NULL"""
#: What notes here that all of the jobs were acked.
ACKED = "ack"
# Beyond so many a look into the documents takes too long.
_MOST_ACKS = 64
# A null as the time fails: then not all of them were live.
_ACKS_OP = f"""INSERT INTO localqueue_ops(op,at,verb,found)
 VALUES(?1,iif(changes()=?2,?3,NULL),'{ACKED}',?4)"""


def ack(
    op: str, now: int, boot: int, rows: Sequence[Sequence[Any]], claims: bool
) -> list[Statement] | None:
    """Ack simple jobs whose leases are all live; None: for other settlements.

    ``claims`` says that a claim follows in the same request.
    """
    if not _are_simple(rows):
        return None
    if len(rows) == 1:
        ((_, id, receipt, _, _, _, result, *_),) = rows
        first: Statement = [_ACK, now, document([result]), id, receipt, boot]
    else:
        first = [_ACKS, now, _by_id(rows, 2), _by_id(rows, 6), boot]
    return [first, [_ACKS_OP, op, len(rows), now, 1 if claims else None]]


def _are_simple(rows: Sequence[Sequence[Any]]) -> bool:
    return len(rows) <= _MOST_ACKS and not any(row[3] != schema.ACK or row[-1] for row in rows)


def _by_id(rows: Sequence[Sequence[Any]], column: int) -> str:
    return document({f"j{row[1]}": row[column] for row in rows if row[column] is not None})


_CLAIM = """INSERT INTO localqueue_do_claim VALUES(?1,?2,?3,?4,?5,?6,?7)
 RETURNING (SELECT job FROM localqueue_claimed WHERE op=?1)"""
_EXCHANGE = """INSERT INTO localqueue_do_exchange
 VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)
 RETURNING (SELECT group_concat(job) FROM localqueue_taken WHERE op=?1)"""


def exchange(
    op: str,
    now: int,
    boot: int,
    rows: Sequence[Sequence[Any]],
    source: Sequence[Any],
    want: int,
    *,
    floor: int,
    worker: str,
) -> Statement | None:
    """Ack simple jobs whose leases are all live, and claim of one queue; ``taken`` reads it.

    None: for other settlements, and for names that rqlite would change.
    """
    queue, lease, max_retries = source
    if looks_like_blob(queue) or looks_like_blob(worker) or not _are_simple(rows):
        return None
    values = [op, now, boot + lease, queue, max_retries, floor, worker]
    if want == 1 and not rows:
        return [_CLAIM, *values]
    claim = rows[0][2].partition(":")[0] if rows else ""
    alike = all(row[2] == f"{claim}:{row[1]}:0" for row in rows)
    results = _by_id(rows, 6) if any(row[6] is not None for row in rows) else None
    return [
        *(_EXCHANGE, *values, want, boot, document([row[1] for row in rows]), len(rows)),
        *((claim, None) if alike else (None, _by_id(rows, 2))),
        results,
    ]


def taken(op: str, results: Sequence[Result]) -> list[list[Any]]:
    """Return ``CLAIMED`` of the jobs that ``exchange`` took, from the last of the results."""
    jobs = json.loads(f"[{results[-1].rows[0][0] or ''}]")
    return [[job[0], job[1], f"{op}:{job[0]}:0", *job[2:]] for job in jobs]


def claims(op: str, now: int) -> Statement:
    """Note a claim, which is to follow in the same request."""
    return ["INSERT INTO localqueue_ops(op,at,verb,found) VALUES(?,?,'claim',1)", op, now]
