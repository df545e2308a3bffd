"""The short ways of put, ack and claim: what most calls need, in few and short statements.

Each request notes its operation in ``localqueue_ops`` and presumes what is mostly so. Where it
isn't so, or where an earlier copy was applied, a constraint fails, all is rolled back, and
``GuardFailed`` is raised; the statements of ``statements`` then do it with the same operation.
Every node parses and prepares each statement anew, so words cost, and ephemeral tables, as
``IN`` and ``RETURNING`` make them, cost most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_localqueue.backends.rqlite import schema
from django_localqueue.backends.rqlite.records import document
from django_localqueue.transports.statements import Statement

#: What the text of a failed constraint holds where a request is not for the short way.
GUARD = "localqueue_"

_PUT_OP = f"""INSERT INTO localqueue_ops(op,at,verb,answer,found)
 SELECT ?1,?2,'put',max(?2,1+{schema.LAST_ID}),id FROM localqueue_queues WHERE name=?3->>0"""
_PUT = """INSERT INTO localqueue_messages(id,queue,state,prio,since,at,created,payload,job_id,\
max_retries,task,headers)
 SELECT answer,found,?3>0,?4,iif(?3,0,answer),iif(?3,at+?3,answer),at,?2->>0,?2->>1,?2->>2,\
?2->>3,?2->>4 FROM localqueue_ops WHERE op=?1"""


def put(op: str, now: int, queue: str, row: Sequence[Any]) -> list[Statement] | None:
    """Store a simple job; the last result tells its id, if it changed a row.

    It changed none where the queue is new; nothing was done then. None: not for a job in a
    group, or with a unique key, an expiry or a retention of its own.
    """
    payload, job_id, delay, prio, group, max_retries, task, headers, *options = row
    expires, unique_key, _, retention = options
    if any(option is not None for option in (group, expires, unique_key, retention)):
        return None
    texts = document([payload, job_id, max_retries, task, headers])
    return [[_PUT_OP, op, now, document([queue])], [_PUT, op, texts, delay, prio]]


_ACK = """UPDATE localqueue_messages SET state=4,at=?1,verb=1,result=?2->>0,err_class=NULL,\
err_message=NULL,err_place=NULL WHERE id=?3 AND receipt=?4 AND state=3 AND at>?5 AND grp IS NULL"""
_ACKS = """UPDATE localqueue_messages SET state=4,at=?1,verb=1,result=NULL,err_class=NULL,\
err_message=NULL,err_place=NULL WHERE id IN(SELECT value FROM json_each(?2))
 AND receipt IN(SELECT value FROM json_each(?3)) AND state=3 AND at>?4 AND grp IS NULL"""
_ACKS_WITH_RESULTS = """UPDATE localqueue_messages SET state=4,at=?1,verb=1,result=d.result,\
err_class=NULL,err_message=NULL,err_place=NULL FROM(SELECT value->>0 AS job,\
value->>1 AS receipt,value->>2 AS result FROM json_each(?2)) AS d
 WHERE localqueue_messages.id=d.job AND localqueue_messages.receipt=d.receipt
 AND state=3 AND at>?3 AND grp IS NULL"""
# A null as the time fails: then not all of them were live.
_ACKS_OP = """INSERT INTO localqueue_ops(op,at,verb,found)
 VALUES(?1,iif(changes()=?2,?3,NULL),'settle',?4)"""


def ack(
    op: str, now: int, boot: int, rows: Sequence[Sequence[Any]], claims: bool
) -> list[Statement] | None:
    """Ack simple jobs whose leases are all live; None: they are not all acks of such.

    ``claims`` says that a claim follows in the same request.
    """
    if any(row[3] != schema.ACK or row[-1] for row in rows):
        return None
    if len(rows) == 1:
        ((_, id, receipt, _, _, _, result, *_),) = rows
        first: Statement = [_ACK, now, document([result]), id, receipt, boot]
    elif any(row[6] is not None for row in rows):
        first = [
            _ACKS_WITH_RESULTS,
            now,
            document([[row[1], row[2], row[6]] for row in rows]),
            boot,
        ]
    else:
        ids, receipts = [row[1] for row in rows], [row[2] for row in rows]
        first = [_ACKS, now, document(ids), document(receipts), boot]
    return [first, [_ACKS_OP, op, len(rows), now, 1 if claims else None]]


def claims(op: str, now: int) -> Statement:
    """Note a claim, which is to follow in the same request."""
    return ["INSERT INTO localqueue_ops(op,at,verb,found) VALUES(?,?,'claim',1)", op, now]
