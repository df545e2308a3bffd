"""A cluster under faults, clients that keep ledgers, and the audit of both."""
