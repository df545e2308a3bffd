"""Speed, beside the peers and beside bare SQLite: ``python -m benchmarks --help``."""
