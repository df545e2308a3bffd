"""The queues: one contract (``base``), one module for each store."""
