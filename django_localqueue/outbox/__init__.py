"""The outbox: jobs written in a database transaction, and moved to their queues afterwards.

An app of its own, for projects that must not lose a job between a commit and its put. Its
table belongs to each database whose transactions enqueue; a worker moves what is in it.
"""
